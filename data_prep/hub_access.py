"""Find out quickly whether the Hugging Face Hub can be reached."""

import socket
from urllib.parse import urlsplit

SECONDS = 5


def connect_to_hub() -> None:
    """Connect once; the Hub's own library tries again and again, for minutes, before it gives up.

    Raises:
        OSError: The Hub, or the mirror that is set in its place, cannot be reached.
    """
    from huggingface_hub import constants

    address = urlsplit(constants.ENDPOINT)
    port = address.port or (443 if address.scheme == "https" else 80)
    socket.create_connection((address.hostname, port), SECONDS).close()
