"""libshunt.so exports exactly the functions that its C headers declare, and brings no gRPC and no protobuf along.

usage: exported_symbols_test.py LIBSHUNT.SO HEADER...
"""
import re
import subprocess
import sys


def main(library, *headers):
    declared = set()
    for header in headers:
        with open(header) as f:
            declared |= set(re.findall(r"SHUNT_API\s+[^;(]*?\b(shunt_\w+)\s*\(", f.read()))
    listing = subprocess.run(["nm", "-D", "--defined-only", library], check=True,
                             capture_output=True, text=True).stdout
    exported = {line.split()[-1].split("@")[0] for line in listing.splitlines()}
    dynamic = subprocess.run(["readelf", "-dW", library], check=True, capture_output=True,
                             text=True).stdout
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)

    problems = [f"exported, but in no header: {name}" for name in sorted(exported - declared)]
    problems += [f"in a header, but not exported: {name}" for name in sorted(declared - exported)]
    problems += [f"needs {name}" for name in needed
                 if re.match(r"lib(protobuf|grpc|gpr|upb|prometheus|spdlog|cuda|cudart)", name)]
    if len(declared) < 10:
        problems.append(f"only {len(declared)} functions found in {headers}: is the pattern right?")
    print("\n".join(problems))
    print(f"{len(exported)} exported, {len(declared)} declared; needs {' '.join(needed)}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
