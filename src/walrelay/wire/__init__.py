"""Bytes → messages: framing of COPY and (later) pgoutput; pure, no sockets."""
