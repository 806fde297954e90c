"""deploy/k8s as a cluster would take it: kubernetes_test.py BUILD_DIR.

Every overlay is rendered by kubectl and held to the API's schemas, unknown fields refused; flags and configuration go to the
daemon itself, programs of examples to a daemon that runs.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

import tools

ROOT = pathlib.Path(__file__).resolve().parents[2]
K8S = ROOT / "deploy/k8s"
BUILD = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 else ROOT / "build").resolve()
KUBECTL, validator = tools.fetch(BUILD)
import yaml  # noqa: E402  (one of the fetched)

API_VERSION = "1.31"
OVERLAYS = sorted(path.name for path in (K8S / "overlays").iterdir())
_rendered = {}


def render(directory):
    if directory not in _rendered:
        done = subprocess.run([KUBECTL, "kustomize", K8S / directory], capture_output=True, text=True)
        if done.returncode != 0:
            raise AssertionError(f"{directory}: {done.stderr}")
        _rendered[directory] = list(yaml.safe_load_all(done.stdout))
    return _rendered[directory]


def find(objects, kind, name=None):
    found = [o for o in objects if o["kind"] == kind and name in (None, o["metadata"]["name"])]
    assert len(found) == 1, f"{len(found)} objects {kind} {name}"
    return found[0]


def pod_specs(objects):
    return {f"{o['kind']} {o['metadata']['name']}": o["spec"]["template"]["spec"]
            for o in objects if o["kind"] in ("DaemonSet", "Deployment", "Job")}


def restricted_violations(spec):
    """What the level "restricted" of the Pod Security Standards forbids in a pod."""
    wrong = [key for key in ("hostIPC", "hostPID", "hostNetwork") if spec.get(key)]
    allowed = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
    for volume in spec.get("volumes", []):
        wrong += [f"volume {kind}" for kind in volume.keys() - {"name"} - allowed]
    pod = spec.get("securityContext", {})
    for container in spec["containers"] + spec.get("initContainers", []):
        own = container.get("securityContext", {})
        capabilities = own.get("capabilities", {})
        checks = {
            "privileged": not own.get("privileged"),
            "allowPrivilegeEscalation": own.get("allowPrivilegeEscalation") is False,
            "runAsNonRoot": own.get("runAsNonRoot", pod.get("runAsNonRoot")) is True,
            "runAsUser 0": own.get("runAsUser", pod.get("runAsUser")) != 0,
            "seccompProfile": own.get("seccompProfile", pod.get("seccompProfile", {})).get("type") in ("RuntimeDefault", "Localhost"),
            "capabilities": capabilities.get("drop") == ["ALL"] and not set(capabilities.get("add", [])) - {"NET_BIND_SERVICE"},
            "hostPort": not any(port.get("hostPort") for port in container.get("ports", [])),
        }
        wrong += [f"{container['name']}: {what}" for what, fine in checks.items() if not fine]
    return wrong


class Manifests(unittest.TestCase):
    def test_every_object_is_one_of_the_api(self):
        for directory in [f"overlays/{name}" for name in OVERLAYS] + ["examples"]:
            for o in render(directory):
                with self.subTest(directory, object=f"{o['kind']} {o['metadata']['name']}"):
                    validator.validate(o, API_VERSION, strict=True)

    def test_a_misspelt_field_would_be_found(self):
        daemons = json.loads(json.dumps(find(render("overlays/gpu-mps"), "DaemonSet")))
        daemons["spec"]["template"]["spec"]["containers"][0]["volumeMount"] = []
        with self.assertRaises(validator.ValidationError):
            validator.validate(daemons, API_VERSION, strict=True)

    def test_the_daemon_takes_its_flags_and_its_configuration(self):
        for name in OVERLAYS:
            objects = render(f"overlays/{name}")
            container = pod_specs(objects)["DaemonSet shuntd"]["containers"][0]
            with self.subTest(name), tempfile.TemporaryDirectory() as directory:
                config = pathlib.Path(directory) / "shuntd.toml"
                config.write_text(find(objects, "ConfigMap")["data"]["shuntd.toml"])
                values = {"NODE_NAME": "node-1", "POD_IP": "10.1.2.3"}
                self.assertLessEqual(values.keys(), {variable["name"] for variable in container["env"]})
                args = [re.sub(r"\$\((\w+)\)", lambda m: values[m[1]], arg) for arg in container["args"]]
                args = [arg.replace("/etc/shunt/shuntd.toml", str(config)) for arg in args]
                done = subprocess.run([BUILD / "bin/shuntd", *args, "--check-config"], capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, done.stderr)

    def test_probes_ask_the_daemon(self):
        container = pod_specs(render("overlays/pod-network"))["DaemonSet shuntd"]["containers"][0]
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            program, *args = container[probe]["exec"]["command"]
            self.assertEqual(program, "shuntctl")
            args = ["/nowhere/shuntd.sock" if arg == "/run/shunt/shuntd.sock" else arg for arg in args]
            done = subprocess.run([BUILD / "bin/shuntctl", *args], capture_output=True, text=True)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("/nowhere/shuntd.sock", done.stdout + done.stderr)

    def test_parts_agree(self):
        objects = render("overlays/pod-network")
        spec = pod_specs(objects)["DaemonSet shuntd"]
        container = spec["containers"][0]
        config = find(objects, "ConfigMap")["data"]["shuntd.toml"]
        service = find(objects, "Service")
        where = service["metadata"]
        self.assertIn(f'dns_name = "{where["name"]}.{where["namespace"]}.svc.cluster.local"', config)
        self.assertEqual(service["spec"]["clusterIP"], "None")
        self.assertIs(service["spec"]["publishNotReadyAddresses"], True)
        labels = find(objects, "DaemonSet")["spec"]["template"]["metadata"]["labels"]
        self.assertLessEqual(service["spec"]["selector"].items(), labels.items())
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        self.assertEqual(ports, {port["targetPort"]: port["port"] for port in service["spec"]["ports"]})
        self.assertIn(f"--cluster-listen=$(POD_IP):{ports['peers']}", container["args"])
        self.assertIn(f"--cluster-data-listen=$(POD_IP):{ports['data']}", container["args"])
        policy = find(objects, "NetworkPolicy")["spec"]
        self.assertLessEqual(policy["podSelector"]["matchLabels"].items(), labels.items())
        self.assertEqual({port["port"] for port in policy["ingress"][0]["ports"]}, set(ports))
        grace = int(re.search(r'grace_period = "(\d+)s"', config)[1])
        self.assertGreaterEqual(spec["terminationGracePeriodSeconds"], grace + 20)

    def test_metrics_are_a_component_of_any_overlay(self):
        for name in OVERLAYS:
            with self.subTest(name), tempfile.TemporaryDirectory() as directory:
                place = os.path.relpath(K8S, os.path.realpath(directory))
                (pathlib.Path(directory) / "kustomization.yaml").write_text(
                    "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n"
                    f"resources: [{place}/overlays/{name}]\ncomponents: [{place}/components/metrics]\nnamespace: shunt\n")
                objects = render(directory)
                container = pod_specs(objects)["DaemonSet shuntd"]["containers"][0]
                self.assertIn("--metrics-address=$(POD_IP):9464", container["args"])
                self.assertIn({"name": "metrics", "containerPort": 9464},
                              [{key: port[key] for key in ("name", "containerPort")} for port in container["ports"]])
                policy = find(objects, "NetworkPolicy", "shuntd-metrics")
                validator.validate(policy, API_VERSION, strict=True)
                self.assertEqual(policy["spec"]["ingress"][0]["ports"], [{"protocol": "TCP", "port": "metrics"}])
                monitor = find(objects, "PodMonitor")
                labels = find(objects, "DaemonSet")["spec"]["template"]["metadata"]["labels"]
                for selector in (monitor["spec"]["selector"], policy["spec"]["podSelector"]):
                    self.assertLessEqual(selector["matchLabels"].items(), labels.items())
                self.assertEqual(monitor["spec"]["podMetricsEndpoints"][0]["port"], "metrics")

    def test_the_daemon_has_no_more_rights_than_its_directory_needs(self):
        for name in OVERLAYS:
            spec = pod_specs(render(f"overlays/{name}"))["DaemonSet shuntd"]
            wrong = restricted_violations(spec)
            expected = {"volume hostPath", "directory: runAsNonRoot", "directory: runAsUser 0", "directory: capabilities"}
            if name != "pod-network":
                expected |= {"hostNetwork", "shuntd: hostPort"}
            self.assertEqual(set(wrong), expected, name)
            self.assertIs(spec["automountServiceAccountToken"], False)
        kinds = {o["kind"] for o in render("overlays/gpu-mps")}
        self.assertFalse({kind for kind in kinds if "Role" in kind})

    def test_jobs_are_restricted_and_in_the_sockets_group(self):
        objects = render("examples")
        self.assertEqual(find(objects, "Namespace")["metadata"]["labels"]["pod-security.kubernetes.io/enforce"], "restricted")
        daemon = pod_specs(render("overlays/pod-network"))["DaemonSet shuntd"]
        host = next(v["hostPath"]["path"] for v in daemon["volumes"] if v["name"] == "sockets")
        volume, claim = find(objects, "PersistentVolume"), find(objects, "PersistentVolumeClaim")
        self.assertEqual(volume["spec"]["hostPath"]["path"], host)
        self.assertEqual(volume["spec"]["claimRef"], {key: claim["metadata"][key] for key in ("namespace", "name")})
        self.assertEqual(claim["spec"]["volumeName"], volume["metadata"]["name"])
        self.assertEqual(len(pod_specs(objects)), 3)
        for name, spec in pod_specs(objects).items():
            self.assertEqual(restricted_violations(spec), [], name)
            self.assertIn(daemon["securityContext"]["runAsGroup"], spec["securityContext"]["supplementalGroups"])
            claims = [v["persistentVolumeClaim"]["claimName"] for v in spec["volumes"] if "persistentVolumeClaim" in v]
            self.assertEqual(claims, [claim["metadata"]["name"]])

    def test_no_job_may_be_the_daemons_user(self):
        objects = render("examples")
        daemon = pod_specs(render("overlays/pod-network"))["DaemonSet shuntd"]["securityContext"]["runAsUser"]
        policy = find(objects, "ValidatingAdmissionPolicy")["spec"]
        labels = policy["matchConstraints"]["namespaceSelector"]["matchLabels"]
        self.assertLessEqual(labels.items(), find(objects, "Namespace")["metadata"]["labels"].items())
        self.assertEqual(find(objects, "ValidatingAdmissionPolicyBinding")["spec"]["validationActions"], ["Deny"])
        for validation in policy["validations"]:
            self.assertIn(f"in [0, {daemon}]", validation["expression"])
        for name, spec in pod_specs(objects).items():
            self.assertNotIn(spec["securityContext"]["runAsUser"], (0, daemon), name)

    def test_the_containerfile_is_one(self):
        text = re.sub(r"\\\n", " ", (K8S / "Containerfile").read_text())
        lines = [line for line in text.splitlines() if line and not line.startswith("#")]
        stages = re.findall(r"^FROM (\S+) AS (\S+)$", text, re.MULTILINE)
        self.assertEqual([stage for _, stage in stages], ["daemon", "job"])
        self.assertRegex(stages[0][0], r"^docker\.io/library/debian:12-slim$")
        for line in lines:
            word, rest = line.split(maxsplit=1)
            self.assertIn(word, ("FROM", "ARG", "COPY", "RUN", "USER", "ENTRYPOINT", "CMD"))
            if word in ("ENTRYPOINT", "CMD"):
                json.loads(rest)
            if word == "USER":
                self.assertRegex(rest, r"^\d+:\d+$")
            if word == "RUN":
                self.assertEqual(subprocess.run(["sh", "-n", "-c", rest]).returncode, 0, rest)
                self.assertIn("rm -rf", rest)
        # Each stage ends as the user that its pods have.
        users = re.findall(r"^USER (\d+):\d+$", text, re.MULTILINE)
        daemon = pod_specs(render("overlays/pod-network"))["DaemonSet shuntd"]["securityContext"]["runAsUser"]
        self.assertEqual((users[0], users[-1]), (str(daemon), "10001"))


class Programs(unittest.TestCase):
    """What the examples run, with a daemon."""

    @classmethod
    def setUpClass(cls):
        if os.environ.get("SANITIZED"):
            raise unittest.SkipTest("a sanitized library needs its own runtime in every program")
        directory = tempfile.TemporaryDirectory(prefix="shunt-k8s-")
        cls.addClassCleanup(directory.cleanup)
        socket = os.path.join(directory.name, "shuntd.sock")
        cls.environment = {**os.environ, "SHUNT_SOCKET": socket, "SHUNT_JOB": "test", "PYTHONPATH": str(ROOT / "client/python"),
                           "SHUNT_LIBRARY": str(BUILD / "lib/libshunt.so")}
        daemon = subprocess.Popen([BUILD / "bin/shuntd", "--socket", socket, "--log-level", "error"])
        cls.addClassCleanup(daemon.wait)
        cls.addClassCleanup(daemon.terminate)
        deadline = time.monotonic() + 20
        while not os.path.exists(socket):
            assert time.monotonic() < deadline and daemon.poll() is None, "no daemon"
            time.sleep(0.01)

    def start(self, program, **environment):
        process = subprocess.Popen([sys.executable, "-B", "-u", "-c", program], env={**self.environment, **environment},
                                   stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def test_the_training_job_adds(self):
        container = pod_specs(render("examples"))["Job training"]["containers"][0]
        program = container["command"][2]
        ranks = [self.start(program, JOB_COMPLETION_INDEX=str(rank)) for rank in range(8)]
        for rank, process in enumerate(ranks):
            self.assertEqual(process.communicate(timeout=60)[0], f"rank {rank}: 28.0\n")

    def test_the_decode_worker_pulls_from_the_prefill_worker(self):
        programs = find(render("examples"), "ConfigMap", "prefill-decode")["data"]
        self.assertEqual(self.start(programs["prefill.py"]).stdout.readline(), "published\n")
        self.assertEqual(self.start(programs["decode.py"]).stdout.readline(), "pulled 42.0 7.0\n")


if __name__ == "__main__":
    unittest.main()
