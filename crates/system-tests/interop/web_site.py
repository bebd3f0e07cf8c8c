"""A web site over HTTPS whose page opens a WebSocket to it (RFC 6455), says what it was told there, and is done.

`web_site.py PORT DIRECTORY` serves 127.0.0.1 by a certificate of its own, which it writes into the directory. It prints
`serving`, then one line for what the page says.
"""

import base64
import datetime
import hashlib
import http.server
import pathlib
import ssl
import sys

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

PAGE = b"""<!doctype html><title>waiting</title><script>
const socket = new WebSocket(`wss://${location.host}/socket`);
socket.onopen = () => socket.send("hello");
socket.onmessage = event => fetch("/told?" + event.data);
socket.onerror = () => fetch("/told?error");
</script>"""

# RFC 6455 section 1.3.
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Site(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path == "/socket":
            self.serve_socket()
        elif self.path.startswith("/told?"):
            print("told", self.path.removeprefix("/told?"), flush=True)
            self.answer(b"")
        else:
            self.answer(PAGE)

    def answer(self, content):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def serve_socket(self):
        """Takes one short masked text, and sends it back as text."""
        accept = hashlib.sha1(self.headers["Sec-WebSocket-Key"].encode() + GUID).digest()
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(accept).decode())
        self.end_headers()
        first, length = self.rfile.read(2)
        assert (first, length & 0x80) == (0x81, 0x80), "one masked text"
        mask, masked = self.rfile.read(4), self.rfile.read(length & 0x7F)
        text = bytes(byte ^ mask[index % 4] for index, byte in enumerate(masked))
        self.wfile.write(bytes([0x81, len(text)]) + text)
        # It is the browser's to close.
        self.rfile.read()
        self.close_connection = True

    def log_message(self, *arguments):
        pass


def own_certificate(directory):
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.timezone.utc)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - datetime.timedelta(days=1))
    builder = builder.not_valid_after(now + datetime.timedelta(days=1))
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    certificate = builder.sign(key, hashes.SHA256())
    pem = pathlib.Path(directory) / "web-site.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    pem.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
    return pem


def main(port, directory):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own_certificate(directory))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), Site)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    print("serving", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
