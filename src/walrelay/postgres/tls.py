"""What libpq says when an encrypted connection cannot be made, as errors of ours. It gives no codes for them."""

from __future__ import annotations

from walrelay.errors import (
    TlsClientCertificateError,
    TlsError,
    TlsHostNameError,
    TlsNotOfferedError,
    TlsRequiredError,
    TlsUntrustedError,
)

# First match wins: all of these words → our error, and what happened. They are libpq's (fe-secure-openssl.c,
# fe-connect.c) and the server's (auth.c); alerts are as OpenSSL prints them.
_BY_WORDS: tuple[tuple[tuple[str, ...], type[TlsError], str], ...] = (
    (("root certificate file", "does not exist"), TlsUntrustedError, "no root certificate to check the server's with"),
    (("could not read root certificate file",), TlsUntrustedError, "the root certificate file cannot be read"),
    (("certificate verify failed",), TlsUntrustedError, "its certificate is not from an authority that is trusted"),
    (("does not match host name",), TlsHostNameError, "its certificate is for another host name"),
    (("server does not support SSL",), TlsNotOfferedError, "the server offers no TLS, which sslmode demands"),
    (("requires a valid client certificate",), TlsClientCertificateError, "the server wants a client certificate"),
    (("certificate authentication failed",), TlsClientCertificateError, "the client certificate is another user's"),
    (("alert unknown ca",), TlsClientCertificateError, "the server does not trust the client certificate's authority"),
    (("alert certificate",), TlsClientCertificateError, "the server refused the client certificate"),
    (("alert bad certificate",), TlsClientCertificateError, "the server refused the client certificate"),
    (("certificate file",), TlsClientCertificateError, "the client certificate file cannot be used"),
    (("private key file",), TlsClientCertificateError, "the client certificate's key file cannot be used"),
    (("no pg_hba.conf entry", "no encryption"), TlsRequiredError, "the server takes no unencrypted connection"),
    (("SSL error",), TlsError, "the encrypted connection failed"),
)


def tls_failure(said: str, where: str) -> TlsError | None:
    """The error for libpq's words; None when they are not about TLS."""
    for words, kind, what in _BY_WORDS:
        if all(word in said for word in words):
            return kind(f"{where}: {what}")
    return None
