"""The embedded API server: each request, with or without a socket, goes through `Server.handle`."""

from __future__ import annotations

from kapsa.devcluster.embedded.admission.chain import admission_chain
from kapsa.devcluster.embedded.admission.webhooks import WebhookAdmission
from kapsa.devcluster.embedded.authentication.authenticator import Authenticator
from kapsa.devcluster.embedded.authentication.tokens import Tokens
from kapsa.devcluster.embedded.authorization.attributes import attributes_of
from kapsa.devcluster.embedded.authorization.authorizer import (
    Authorizer,
    PolicyAuthorizer,
    RbacAuthorizer,
    check,
)
from kapsa.devcluster.embedded.authorization.escalation import EscalationCheck
from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.bootstrap import advertise, bootstrap, publish_authority
from kapsa.devcluster.embedded.custom.resources import CustomResources
from kapsa.devcluster.embedded.documents.metrics import RequestMetrics
from kapsa.devcluster.embedded.documents.router import Documents
from kapsa.devcluster.embedded.endpoints.resources import ResourceEndpoints
from kapsa.devcluster.embedded.verbs.client import InProcessClient
from kapsa.devcluster.faults.gate import FaultGate
from kapsa.devcluster.faults.plan import FaultPlan
from kapsa.devcluster.log import log_exception
from kapsa.devcluster.wire import routes
from kapsa.devcluster.wire import status_errors as errors
from kapsa.devcluster.wire.authorization import AccessPolicy
from kapsa.devcluster.wire.exchange import ADMIN, ConnectionDroppedError, Reply, Request
from kapsa.devcluster.wire.go_json import TOO_DEEP
from kapsa.devcluster.wire.routes import ResourceRoute
from kapsa.devcluster.wire.status_errors import PlainError, StatusError

__all__ = ["Server"]


class _Levers:
    """The faults that need the server itself: delays, compactions and frozen reads."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def sleep(self, seconds: float) -> None:
        await self._backend.clock.sleep(seconds)

    async def compact(self) -> None:
        self._backend.store.compact()

    async def revision(self) -> int:
        return self._backend.store.revision


class Server:
    """One embedded API server."""

    def __init__(
        self,
        backend: Backend | None = None,
        *,
        faults: FaultPlan | None = None,
        policy: AccessPolicy | None = None,
        token_key: bytes | None = None,
    ) -> None:
        """Make a server; `token_key` is the private key of tokens in PEM, by default a new one."""
        self.backend = backend or Backend()
        self.faults = faults
        self._gate = FaultGate(_Levers(self.backend), faults or FaultPlan())
        counter = InProcessClient(self.backend, manager="kube-apiserver")
        rbac = RbacAuthorizer(self.backend.store)
        self._authorizer: Authorizer = rbac if policy is None else PolicyAuthorizer(policy)
        self.webhooks = WebhookAdmission(self.backend, self._authorizer)
        """Admission webhooks and the routes of their calls."""
        chain = admission_chain(self.backend, self._authorizer, self.webhooks, counter.update_status)
        if policy is None:
            chain.append(EscalationCheck(rbac))
        self.backend.admission.extend(chain)
        self._checks_paths = policy is None
        tokens = Tokens(self.backend, token_key)
        self.issue_secret_token = tokens.issue_for_secret
        """Makes the token of a Secret that holds one, for the controller that fills such Secrets."""
        self._authenticator = Authenticator(self._authorizer, tokens)
        self.client = InProcessClient(self.backend)
        """Reads and writes for controllers and tests in this process, with Python objects."""
        bootstrap(self.backend)
        self.custom_resources = CustomResources(self.backend, self.webhooks.client)
        self.endpoints = ResourceEndpoints(self.backend, self._authorizer, tokens)
        """The paths of resources."""
        self._requests = RequestMetrics(self.backend.registry)
        self._documents = Documents(self.backend.registry, tokens, self._requests, self.backend.store)

    def advertise(self, host: str, port: int) -> None:
        """Make the Service `kubernetes` point to the address that the server listens on."""
        advertise(self.backend, host, port)

    def publish_authority(self, certificate: str) -> None:
        """Publish the authority of client certificates in a ConfigMap, as the real server does."""
        publish_authority(self.backend, certificate)

    async def handle(self, request: Request) -> Reply:
        """Serve one request; whatever a client sends, the reply reports what is wrong with it.

        Raises ConnectionDroppedError when the fault plan closes the connection without a reply.
        """
        try:
            return await self._dispatch(request)
        except (StatusError, PlainError) as error:
            return error.reply()
        except ConnectionDroppedError:
            raise
        except RecursionError:
            return errors.bad_request(TOO_DEEP).reply()
        except Exception as error:
            log_exception("request failed", error, method=request.method, path=request.path)
            return errors.internal(f"{type(error).__name__}: {error}").reply()

    async def _dispatch(self, request: Request) -> Reply:
        route = routes.parse(request.path)
        request = self._authenticator.authenticate(request, route)
        if route is None:
            if self._checks_paths and not self._authorizer.trusts(request.user or ADMIN):
                check(self._authorizer, attributes_of(request, None))
            return self._documents.answer(request)
        return await self._measured(request, route, routes.verb_of(request, route))

    async def _measured(self, request: Request, route: ResourceRoute, verb: str) -> Reply:
        """Serve a request for a resource, and count it; one that a fault plan drops counts as 500."""
        status = 500
        started = self._requests.begin(verb)
        try:
            if self.faults is None:
                reply = await self._serve(request, route, verb)
            else:
                reply = await self._gate.serve(request, route, verb, self._serve)
            status = reply.status
        except (StatusError, PlainError) as error:
            status = error.code
            raise
        finally:
            self._requests.end(started, request, route, verb, status)
        return reply

    async def _serve(
        self, request: Request, route: ResourceRoute, verb: str, frozen: int | None = None
    ) -> Reply:
        reply = await self.endpoints.serve(request, route, verb, frozen)
        if route.resource == "customresourcedefinitions":
            # A new definition is served before its writer gets the reply.
            self.custom_resources.settle()
        return reply
