"""A mail server (aiosmtpd) for the interoperability run: smtpd.py DIRECTORY CERTIFICATE KEY SECURITY.

SECURITY is starttls, tls or none. It signs in the user weir with the password "s3cret", which is required except with none, refuses recipients that begin
with "gone", and writes each mail into the directory. It prints its port, and serves until it is stopped.
"""
import asyncio
import logging
import os
import ssl
import sys

from aiosmtpd.smtp import AuthResult, SMTP

directory, certificate, key, security = sys.argv[1:]


class Handler:
    mails = 0

    async def handle_RCPT(self, server, session, envelope, address, options):
        if address.startswith("gone"):
            return "550 5.1.1 there is no such user"
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 fine"

    async def handle_DATA(self, server, session, envelope):
        path = os.path.join(directory, "%04d.eml" % self.mails)
        self.mails += 1
        with open(path, "wb") as f:
            f.write(envelope.original_content)
        with open(path + ".to", "w") as f:
            f.write(" ".join(envelope.rcpt_tos))
        return "250 2.0.0 queued"


def sign_in(server, session, envelope, mechanism, data):
    if data.login == b"weir" and data.password == b"s3cret":
        return AuthResult(success=True)
    return AuthResult(success=False, handled=False)


logging.getLogger("mail.log").setLevel(logging.ERROR)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(certificate, key)


def session():
    return SMTP(Handler.only, authenticator=sign_in, auth_required=security != "none", auth_require_tls=security == "starttls",
                require_starttls=security == "starttls", tls_context=context if security == "starttls" else None)


async def serve():
    server = await asyncio.get_running_loop().create_server(session, "127.0.0.1", 0, ssl=context if security == "tls" else None)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


Handler.only = Handler()
asyncio.run(serve())
