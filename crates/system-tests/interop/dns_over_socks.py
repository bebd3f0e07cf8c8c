"""DNS over UDP, with a server beyond the tunnel and a client that reaches it through a SOCKS5 proxy.

`serve ADDRESS...` answers each question for TXT with the address at which it came, and prints `serving`.
`ask PROXY HOST...` makes two associations, asks each host through both in turn, and prints one line with the answers.
The port of all servers is 5353.
"""

import json
import selectors
import socket
import sys

import dns.flags
import dns.message
import dns.rrset
import socks

PORT = 5353
LIMIT_SECONDS = 20


def serve(addresses):
    waiting = selectors.DefaultSelector()
    for address in addresses:
        server = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
        server.bind((address, PORT))
        waiting.register(server, selectors.EVENT_READ, address)
    print("serving", flush=True)
    while True:
        for key, _ in waiting.select():
            wire, client = key.fileobj.recvfrom(65535)
            question = dns.message.from_wire(wire)
            answer = dns.message.make_response(question)
            name = question.question[0].name
            answer.answer.append(dns.rrset.from_text(name, 60, "IN", "TXT", key.data))
            key.fileobj.sendto(answer.to_wire(), client)


def associate(proxy):
    """The relay is there when `bind` returns, and goes with the connection that the socket keeps."""
    association = socks.socksocket(socket.AF_INET, socket.SOCK_DGRAM)
    host, port = proxy.rsplit(":", 1)
    association.set_proxy(socks.SOCKS5, host, int(port), rdns=True)
    association.settimeout(LIMIT_SECONDS)
    association.bind(("", 0))
    return association


def ask(proxy, hosts):
    associations = [associate(proxy), associate(proxy)]
    answers = []
    for host in hosts:
        # Both wait at the same time, so that answers to the wrong one would show.
        questions = [dns.message.make_query(f"q{number}.test", "TXT") for number in (0, 1)]
        for association, question in zip(associations, questions):
            association.sendto(question.to_wire(), (host, PORT))
        for number, (association, question) in enumerate(zip(associations, questions)):
            wire, source = association.recvfrom(65535)
            answer = dns.message.from_wire(wire)
            assert question.is_response(answer), f"{host}: {answer}"
            source = [part.decode() if isinstance(part, bytes) else part for part in source[:2]]
            text = answer.answer[0][0].strings[0].decode()
            answers.append({"association": number, "asked": host, "source": source, "reached": text})
    print(json.dumps(answers), flush=True)


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    if command == "serve":
        serve(arguments)
    else:
        ask(arguments[0], arguments[1:])
