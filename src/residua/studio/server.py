"""The page and its few questions, over HTTP, for the one browser that was given the address.

Only the loopback address is listened to. Whoever does not know the token in the path, speaks to another host
name, or comes from another page gets nothing; and the page may load nothing but what is served here.
"""

import asyncio
import hmac
import json
import secrets
import socket
import tempfile
import webbrowser
from collections.abc import Awaitable, Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from residua._text import one_line
from residua.errors import FileFormatError, ResiduaError, WorkloadError, needing
from residua.spec.drafts import Draft, dialect_of_file, draft_of, drafts_of_schema
from residua.studio.exporting import notebook, python_code
from residua.studio.rehearsal import rehearse
from residua.studio.session import Session, Stale, decoded
from residua.studio.view import DATA, state_of

HOST = "127.0.0.1"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
MOST_BYTES = 4_000_000  # of a question: a spec's text is the longest
WAITING, LOOKING = 25.0, 0.2  # seconds: that a question for news waits, and between two looks at the file
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'none'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Studio:
    """The questions that the page asks, and who may ask them."""

    def __init__(self, session: Session, token: str, port: int) -> None:
        self.session, self.token = session, token
        self.hosts = {f"{HOST}:{port}", f"localhost:{port}"}
        self.ending: Callable[[], bool] = lambda: False

    def refusal(self, headers: Mapping[str, str], token: str, method: str) -> int | None:
        """The status for somebody who may not ask, or None."""
        host, origin = headers.get("host", ""), headers.get("origin")
        if host not in self.hosts or not hmac.compare_digest(token.encode(), self.token.encode()):
            return 404
        elsewhere = headers.get("sec-fetch-site", "none") not in ("same-origin", "none")
        if elsewhere or (origin is not None and origin != f"http://{host}"):
            return 403
        if method == "POST" and headers.get("content-type") != "application/json":
            return 415
        return None

    async def news(self, seen: int) -> dict[str, Any]:
        """The state, once it is another than the one that was seen, or after a while."""
        for _ in range(int(WAITING / LOOKING)):
            await asyncio.to_thread(self.session.refresh)
            if self.session.version != seen or self.ending():
                break
            busy = self.session.job is not None
            await asyncio.sleep(LOOKING)
            if busy:
                break  # how far planning is, is news
        return await asyncio.to_thread(state_of, self.session)

    def act(self, asked: Mapping[str, Any]) -> Any:
        """Do what the page asks for; what comes back is the new state, or the answer."""
        session = self.session
        match asked.get("do"):
            case "edit":
                session.edit(str(asked.get("revision")), decoded(asked.get("edits") or []))
            case "start":
                self.start(str(asked.get("source")), values=asked.get("values") is True)
            case "undo":
                session.undo(-1)
            case "redo":
                session.undo(1)
            case "keep" | "swap" | "drop" | "cancel" | "replan" as what:
                getattr(session, what)()
            case "ghosts":
                session.ghost([str(each) for each in asked.get("methods") or []])
            case "rehearse":
                return self.rehearse(asked)
            case _:
                raise FileFormatError("the page asked for something that this version does not know")
        return state_of(session)

    def start(self, source: str, *, values: bool) -> None:
        """Begin a spec from a file of the folder: a header, a schema; or open the spec that it is."""
        session = self.session
        path = next((each for each in session.folder.iterdir() if each.name == source), None)
        if path is None:
            raise FileFormatError(f"there is no file {source!r} in this folder")
        if path.suffix.lower() in DATA:
            draft = draft_of(path, dialect_of_file(path, None, None), read_values=values)
        else:
            found = drafts_of_schema(path)
            if found is None:  # it is a spec already
                session.path = path
                session.refresh()
                return
            draft = Draft(found, f"Started from the schema in {path.name}.", None)
        plain = path.with_name(f"{path.stem}.yaml")
        target = session.path or (plain if plain != path else path.with_name(f"{path.stem}-spec.yaml"))
        if target.exists():
            raise FileFormatError(f"{target.name} is there already; open it, or rename it first")
        session.path = target
        session.write(draft.text(session.folder))

    def rehearse(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """A table of the plan as it might come out."""
        if self.session.plan is None:
            raise WorkloadError("there is nothing to rehearse yet")
        return rehearse(self.session.plan, *(_whole(asked, name) for name in ("table", "people", "seed")))

    def export(self, name: str) -> tuple[str, str]:
        """A file to carry away: its name and its text."""
        session = self.session
        spec, path = session.spec, session.path
        if path is None or session.text is None:
            raise FileFormatError("there is no spec yet")
        if name == "spec":
            return path.name, session.text
        if spec is None:
            raise FileFormatError(session.problem or "the spec is not complete yet")
        if name == "python":
            return f"{path.stem}.py", python_code(spec)
        if name == "notebook":
            return f"{path.stem}.ipynb", notebook(spec)
        if name == "report" and session.plan is not None and not session.stale:
            with tempfile.TemporaryDirectory() as folder:
                page = Path(folder) / "report.html"
                session.plan.report(page)
                return f"{path.stem}-plan.html", page.read_text(encoding="utf-8")
        raise FileFormatError("there is no plan of this spec yet")


def _whole(asked: Mapping[str, Any], name: str) -> int:
    found = asked.get(name)
    if type(found) is not int or not 0 <= found < 10**12:
        raise WorkloadError(f"{name} is a whole number")
    return found


def application(studio: Studio) -> Any:
    """The studio as an ASGI application."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    Answer = Callable[[Request], Awaitable[Response]]

    def guarded(answer: Answer) -> Answer:
        """The answer for those who may ask; a mistake of theirs is told, on one line."""

        async def answered(request: Request) -> Response:
            status = studio.refusal(request.headers, request.path_params.get("token", ""), request.method)
            if status is not None:
                return Response(status_code=status, headers=HEADERS)
            try:
                found = await answer(request)
            except Stale as error:
                found = JSONResponse({"problem": one_line(str(error))}, status_code=409)
            except (ResiduaError, OSError) as error:
                words = getattr(error, "strerror", None) or one_line(str(error))
                found = JSONResponse({"problem": words}, status_code=400)
            found.headers.update(HEADERS)
            return found

        return answered

    async def asset(request: Request) -> Response:
        name = request.path_params.get("name") or "index.html"
        if name not in ASSETS:
            return Response(status_code=404)
        kind = TYPES[Path(name).suffix]
        return Response(ASSETS[name], media_type=kind)

    async def state(request: Request) -> Response:
        seen = request.query_params.get("seen", "")
        return JSONResponse(await studio.news(int(seen) if seen.isdigit() else -1))

    async def act(request: Request) -> Response:
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > MOST_BYTES:
                return Response(status_code=413)
        try:
            asked = json.loads(body)
        except ValueError:
            return Response(status_code=400)
        return JSONResponse(await asyncio.to_thread(studio.act, asked if isinstance(asked, dict) else {}))

    async def export(request: Request) -> Response:
        name, text = await asyncio.to_thread(studio.export, request.path_params["what"])
        safe = "".join(each if each.isascii() and (each.isalnum() or each in "-_.") else "_" for each in name)
        headers = {"Content-Disposition": f'attachment; filename="{safe}"'}
        return Response(text, media_type="application/octet-stream", headers=headers)

    made = Starlette(
        routes=[
            Route("/{token}/state", guarded(state), methods=["GET"]),
            Route("/{token}/act", guarded(act), methods=["POST"]),
            Route("/{token}/export/{what}", guarded(export), methods=["GET"]),
            Route("/{token}/", guarded(asset), methods=["GET"]),
            Route("/{token}/{name}", guarded(asset), methods=["GET"]),
        ]
    )
    made.router.redirect_slashes = False
    return made


ASSETS = {
    each.name: each.read_bytes()
    for each in files("residua.studio").joinpath("page").iterdir()
    if Path(each.name).suffix in TYPES
}


def serve(path: Path | None, *, port: int, opened: bool, say: Callable[[str], None]) -> None:
    """Serve the page until somebody ends it; `say` is told the address."""
    with needing("studio", "the studio"):
        import uvicorn
    folder = Path.cwd() if path is None else path.parent
    if not folder.is_dir():
        raise FileFormatError(f"there is no folder {folder} to keep {path} in")
    session, token = Session(path, folder), secrets.token_urlsafe(24)
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        own = listener.getsockname()[1]
        listener.listen()
        studio = Studio(session, token, own)
        server = uvicorn.Server(
            uvicorn.Config(application(studio), log_level="critical", timeout_graceful_shutdown=2)
        )
        studio.ending = lambda: bool(server.should_exit)
        try:
            say(f"http://{HOST}:{own}/{token}/")
            if opened:
                webbrowser.open(f"http://{HOST}:{own}/{token}/")
            server.run(sockets=[listener])
        except KeyboardInterrupt:
            return
        finally:
            session.cancel()
