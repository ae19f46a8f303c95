"""Check quickly whether the Hugging Face Hub can be reached, and say why its library failed."""

import socket
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from data_prep.files.quoting import first_line

SECONDS = 5


def connect_to_hub() -> None:
    """Connect once; the library of the Hub retries for minutes before it fails.

    Does nothing behind a proxy or in offline mode: there the library itself fails fast.

    Raises:
        OSError: The Hub, or the mirror that is configured, cannot be reached.
    """
    from huggingface_hub import constants

    address = urlsplit(constants.ENDPOINT)
    through_proxy = address.scheme in getproxies() and not proxy_bypass(address.netloc)
    if constants.HF_HUB_OFFLINE or through_proxy:
        return
    port = address.port or (443 if address.scheme == "https" else 80)
    socket.create_connection((address.hostname, port), SECONDS).close()


def reason_of(error: Exception) -> str:
    """Return, in one line, why the library of the Hub failed."""
    from huggingface_hub import constants

    place, home = str(getattr(error, "filename", None) or ""), constants.HF_HOME
    if place and (place in home or home in place):
        return f"HF_HOME={home} cannot be written; set it to a folder with write permission"
    return first_line(error).rstrip(".")
