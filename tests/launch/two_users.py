"""Another user of the machine, and the user of a job at each kind of port, from each address that reaches it.

usage: two_users.py HYDRANT [OPTION...], as root in a network namespace with 192.0.2.2 and 2001:db8::2. With options, those of
`hydrant run`, servers without a launcher are left out.
"""

import os, re, socket, subprocess, sys

HYDRANT, *OPTIONS = sys.argv[1:]
OTHER = 65534
# Addresses of the machine to connect from.
V4 = ["127.0.0.1", "127.0.0.9", "192.0.2.2", "::ffff:127.0.0.1", "::ffff:192.0.2.2"]
V6 = ["::1", "2001:db8::2"]
# Answered with a refusal, so that no rank is taken.
PMI = [b"cmd=init pmi_version=99 pmi_subversion=0\n"]
MANAGE = [b"\x02\x00\x00\x0d"]
failures = []


def answer(source, host, port, says):
    """What the port answers until it closes the connection; one read is enough."""
    mapped = source.startswith("::ffff:")
    family = socket.AF_INET6 if ":" in source else socket.AF_INET
    client = socket.socket(family)
    client.bind((source, 0))
    try:
        client.connect(("::ffff:" + host if mapped else host, port))
        client.sendall(says)
        return client.recv(4096)
    except ConnectionError:
        return b""
    finally:
        client.close()


def as_other(*asks):
    """The same, for a process of another user."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups([]); os.setgid(OTHER); os.setuid(OTHER)
        try:
            os.write(into, answer(*asks) or b"-")
        finally:
            os._exit(0)
    os.close(into)
    with os.fdopen(out, "rb") as answered:
        found = answered.read()
    os.waitpid(child, 0)
    return b"" if found == b"-" else found or b"no answer: the other user's process failed"


def check(kind, address, says, refused=()):
    """Other users are closed, whatever they say; the own user is answered, unless it says something refused."""
    host, port = address.rsplit(":", 1)
    host = host.strip("[]")
    if host == "0.0.0.0":
        hosts = ["127.0.0.1", "192.0.2.2"]
    elif host == "::":
        hosts = ["::1", "2001:db8::2", "127.0.0.1"]
    else:
        hosts = [host]
    for host in hosts:
        for source in V6 if ":" in host else V4:
            for text in [*says, *refused]:
                heard = as_other(source, host, int(port), text)
                if heard:
                    failures.append(f"{kind}: user {OTHER} from {source} to {host} said {text} and heard {heard}")
                heard = answer(source, host, int(port), text)
                if bool(heard) != (text in says):
                    failures.append(f"{kind}: the own user from {source} to {host} said {text} and heard {heard}")
    print(f"checked {kind}", flush=True)


def hello(namespace, rank):
    body = b"native\0\0\0\0\x08\0\0\0\0\0\0\0\0\0" + namespace.encode() + b"\0" + rank.to_bytes(4, "big")
    body += b"5.0.11\0v41\0\x01hash\0"
    return b"\xff" * 8 + len(body).to_bytes(4, "little") + bytes(4) + body


def started(*words):
    return subprocess.Popen([HYDRANT, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ranks(kind, options, script, lines, see):
    job = started("run", *OPTIONS, *options, "sh", "-c", script + "; read line")
    for _ in range(lines):
        see(kind, job.stdout.readline().strip())
    job.kill()
    job.wait()


def pmix(kind, line):
    namespace, uri = line.split()
    check(kind, uri.split("//")[1], [hello(namespace, 0)], PMI)


PMIX = "echo $PMIX_NAMESPACE $PMIX_SERVER_URI41"
ranks("run", ["-n", "1"], PMIX, 1, pmix)
ranks("run on several hosts", ["--bootstrap", "local", "-hosts", "a:1", "-n", "1"], PMIX, 1, pmix)
for at in ["", "=192.0.2.2:0", "=0.0.0.0:0", "=[::1]:0", "=[2001:db8::2]:0", "=[::]:0"]:
    wildcard = "::" if at == "=[::]:0" else "0.0.0.0"

    def pmi(kind, line):
        address, namespace = line.replace(os.uname().nodename + ":", wildcard + ":").split()
        check(kind, address, PMI, [hello(namespace, 0)])

    ranks(f"run --pmi-port{at}", ["--pmi-port" + at, "-n", "1"], "echo $PMI_PORT $PMIX_NAMESPACE", 1, pmi)
for kind, options, says in [
    ("serve --size", ["--size", "1", "--pmi-port", "127.0.0.1:0"], PMI),
    ("serve --size at the own address", ["--size", "1", "--pmi-port", "192.0.2.2:0"], PMI),
    ("serve --manage", ["--manage=127.0.0.1:0"], MANAGE),
    ("serve --manage at the own address", ["--manage=192.0.2.2:0", "--insecure"], MANAGE),
] if not OPTIONS else []:
    server = started("serve", *options)
    address = re.search(r"\S+:\d+$", server.stdout.readline().strip().replace("PMI_PORT=", "")).group()
    check(kind, address, says)
    server.kill()
    server.wait()
print("\n".join(failures) or "as it should be")
sys.exit(bool(failures))
