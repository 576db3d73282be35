"""A small OIDC provider on a real socket: discovery, keys, the code flow with PKCE. It logs in whom the test says."""

import asyncio
import hashlib
import time
from base64 import b64decode, urlsafe_b64encode
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, unquote, urlencode

import uvicorn
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, OKPKey, RSAKey
from starlette.applications import Starlette
from starlette.responses import JSONResponse, RedirectResponse
from starlette.routing import Route

from perdure.server.serve import _server, bind

CLIENT, SECRET = "perdure", "a:secret of the client"


def keys():
    return {
        "RS256": RSAKey.generate_key(2048, {"kid": "rsa"}),
        "ES256": ECKey.generate_key("P-256", {"kid": "ec"}),
        "Ed25519": OKPKey.generate_key("Ed25519", {"kid": "ed"}),
    }


class Provider:
    """`claims` are those of the person who logs in next; `fetched` counts requests for the keys."""

    def __init__(self, issuer):
        self.issuer, self.keys, self.fetched = issuer, keys(), 0
        self.claims: dict[str, object] = {"sub": "ann"}
        self.codes: dict[str, dict[str, str]] = {}
        self.spoil: dict[str, object] = {}  # changes of the claims of id tokens
        self.asked: list[dict[str, str]] = []
        self.app = Starlette(
            routes=[
                Route("/.well-known/openid-configuration", self.about),
                Route("/keys", self.published),
                Route("/authorize", self.authorize),
                Route("/token", self.token, methods=["POST"]),
            ]
        )

    def sign(self, alg="RS256", *, key=None, header=None, **claims):
        """A token of this provider; a claim that is None is left out."""
        now = int(time.time())
        whole = {"iss": self.issuer, "aud": CLIENT, "exp": now + 300, "iat": now, "sub": "ann", **claims}
        key = key or self.keys[alg]
        header = {"alg": alg, "kid": key.kid, **(header or {})}
        whole = {name: value for name, value in whole.items() if value is not None}
        return jwt.encode({n: v for n, v in header.items() if v is not None}, whole, key, algorithms=[header["alg"]])

    async def about(self, request):
        paths = {"jwks_uri": "keys", "authorization_endpoint": "authorize", "token_endpoint": "token"}
        return JSONResponse({"issuer": self.issuer, **{n: f"{self.issuer}/{path}" for n, path in paths.items()}})

    async def published(self, request):
        self.fetched += 1
        return JSONResponse(KeySet(list(self.keys.values())).as_dict(private=False))

    async def authorize(self, request):
        asked = dict(request.query_params)
        self.asked.append(asked)
        code = f"code-{len(self.asked)}"
        self.codes[code] = asked
        return RedirectResponse(f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state']})}", 302)

    async def token(self, request):
        said = {name: values[0] for name, values in parse_qs((await request.body()).decode()).items()}
        asked = self.codes.pop(said["code"], None)
        user, _, password = b64decode(request.headers["authorization"].split()[1]).decode().partition(":")
        proof = urlsafe_b64encode(hashlib.sha256(said["code_verifier"].encode()).digest()).rstrip(b"=").decode()
        good = (
            asked is not None
            and (unquote(user), unquote(password)) == (CLIENT, SECRET)
            and said["redirect_uri"] == asked["redirect_uri"]
            and (proof, asked["code_challenge_method"]) == (asked["code_challenge"], "S256")
        )
        if not good or asked is None:
            return JSONResponse({"error": "invalid_grant"}, 400)
        claims = {"nonce": asked["nonce"], **self.claims, **self.spoil}
        return JSONResponse({"id_token": self.sign(**claims), "token_type": "Bearer", "access_token": "opaque"})


@asynccontextmanager
async def provider(host="127.0.0.1"):
    listening = bind("127.0.0.1", 0)
    found = Provider(f"http://{host}:{listening.getsockname()[1]}")
    server = _server(uvicorn.Config(found.app, log_config=None, lifespan="off"))
    running = asyncio.ensure_future(server.serve(sockets=[listening]))
    try:
        yield found
    finally:
        server.should_exit = True
        await running
