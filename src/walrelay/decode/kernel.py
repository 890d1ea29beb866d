from walrelay.wire.kernel import OK, be16, be32, be64, kernel

__all__ = ["OK", "be16", "be32", "be64", "kernel"]
