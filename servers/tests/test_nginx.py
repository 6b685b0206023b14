"""nginx as a service: it passes requests on."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.request import ProxyHandler, build_opener

import pytest
from outbox_servers.services import NginxServer, ServiceError


class Echo(BaseHTTPRequestHandler):
    """Answers with the path and with a header."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"{self.path} {self.headers['X-Name']}".encode())

    def log_message(self, *_: object) -> None:
        """Says nothing."""


def test_it_passes_requests_on() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as behind:
        Thread(target=behind.serve_forever, daemon=True).start()
        location = "location /below/ { proxy_set_header X-Name outbox; proxy_pass http://behind; }"
        upstream = f"upstream behind {{ server 127.0.0.1:{behind.server_port}; }}"
        with NginxServer(location, http=upstream) as server:
            ask = build_opener(ProxyHandler({})).open
            with ask(f"{server.url}/below/a?b=c", timeout=30) as answer:
                assert answer.read() == b"/below/a?b=c outbox"
        behind.shutdown()
    assert not server.folder.exists()


def test_what_it_does_not_understand_is_an_error_with_its_log() -> None:
    with pytest.raises(ServiceError, match='unknown directive "nonsense"'), NginxServer("nonsense;"):
        pass
