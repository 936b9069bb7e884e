"""An OpenID provider: it signs tokens, and shows the key that proves them."""

from __future__ import annotations

import base64
import json
import threading
import time
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

KEY_ID = "1"


class Issuer:
    """A provider on loopback; `token` signs what a test wants."""

    def __init__(self) -> None:
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._certificate = _certificate(self._key)
        public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self._key.public_key()))
        public["x5c"] = [base64.b64encode(self._certificate.public_bytes(Encoding.DER)).decode()]
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _pages(self, public))
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """Returns the name of the issuer, which is its URL."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def thumbprint(self) -> str:
        """Returns the SHA-1 of its certificate, by which Ceph knows the provider."""
        return self._certificate.fingerprint(hashes.SHA1()).hex().upper()

    def token(self, subject: str, audience: str, life_s: int = 3600, **claims: object) -> str:
        """Returns a signed token."""
        now = int(time.time())
        whole = {"iss": self.url, "sub": subject, "aud": audience, "iat": now, "exp": now + life_s, **claims}
        return jwt.encode(whole, self._key, algorithm="RS256", headers={"kid": KEY_ID})

    def stop(self) -> None:
        """Ends it."""
        self._server.shutdown()


def _certificate(key: rsa.RSAPrivateKey) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "issuer of a test")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = (
        builder.serial_number(1).not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    )
    return builder.sign(key, hashes.SHA256())


def _pages(issuer: Issuer, public: dict[str, object]) -> type[BaseHTTPRequestHandler]:
    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            about = {
                "issuer": issuer.url,
                "jwks_uri": f"{issuer.url}/jwks",
                "authorization_endpoint": f"{issuer.url}/authorize",
                "token_endpoint": f"{issuer.url}/token",
                "response_types_supported": ["id_token"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["RS256"],
            }
            keys = {"keys": [{**public, "kid": KEY_ID, "use": "sig", "alg": "RS256"}]}
            body = json.dumps(keys if self.path == "/jwks" else about).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    return Pages
