"""moto as a lake that judges, which runs as `python -m roles.judging_moto PORT`.

By `INITIAL_NO_AUTH_ACTION_COUNT` moto checks signatures, policies and the trust of roles. It cannot judge
tokens: it expects a signature with each request, and takes any token. Here tokens are judged as AWS does it,
by the provider and the condition that the trust policy of the role names.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import jwt
from moto.core.authorization import ActionAuthenticatorMixin
from moto.core.responses import ActionResult
from moto.iam.exceptions import NotFoundException
from moto.iam.models import iam_backends
from moto.server import main
from moto.sts.exceptions import STSClientError
from moto.sts.responses import TokenResponse

ACTION = "AssumeRoleWithWebIdentity"

_authenticator: Any = ActionAuthenticatorMixin
_sts: Any = TokenResponse
_authorize = _authenticator._authenticate_and_authorize_action
_assume = _sts.assume_role_with_web_identity


def _authorize_signed(self: Any, *arguments: object, **named: object) -> None:
    if self._get_action() != ACTION:
        _authorize(self, *arguments, **named)


def _assume_by_token(self: TokenResponse) -> ActionResult:
    audience, subject, provider = _judge(self)
    result = _assume(self).result
    said = {"SubjectFromWebIdentityToken": subject, "Audience": audience, "Provider": provider}
    return ActionResult({**result, **said})


def _judge(self: TokenResponse) -> tuple[str, str, str]:
    """Returns the audience, the subject and the provider of the token. Raises unless the role trusts it."""
    iam = iam_backends[self.current_account][self.partition]
    try:
        role = iam.get_role_by_arn(self._get_param("RoleArn"))
    except NotFoundException:
        raise STSClientError("AccessDenied", f"Not authorized to perform sts:{ACTION}") from None
    for statement in json.loads(role.assume_role_policy_document)["Statement"]:
        if f"sts:{ACTION}" in statement["Action"]:
            provider, condition = statement["Principal"]["Federated"], statement["Condition"]["StringEquals"]
            issuer = provider.partition("oidc-provider/")[2]
            claims = _proven(self._get_param("WebIdentityToken"), f"http://{issuer}", condition[f"{issuer}:aud"])
            return claims["aud"], claims["sub"], provider
    raise STSClientError("AccessDenied", f"Not authorized to perform sts:{ACTION}")


def _proven(token: str, issuer: str, audience: str) -> dict[str, str]:
    try:
        key = jwt.PyJWKClient(f"{issuer}/jwks").get_signing_key_from_jwt(token)
        claims: dict[str, str] = jwt.decode(token, key, algorithms=["RS256"], audience=audience, issuer=issuer)
    except jwt.ExpiredSignatureError as refusal:
        raise STSClientError("ExpiredTokenException", str(refusal)) from None
    except jwt.PyJWTError as refusal:
        raise STSClientError("InvalidIdentityTokenException", str(refusal)) from None
    return claims


if __name__ == "__main__":
    _authenticator._authenticate_and_authorize_action = _authorize_signed
    _sts.assume_role_with_web_identity = _assume_by_token
    main(["--host", "127.0.0.1", "--port", sys.argv[1]])
