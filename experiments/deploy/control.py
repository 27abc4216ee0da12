"""A SuperLink that is up, by its control API: sites are registered, runs start, are looked at, end.

The control API speaks TLS but knows no login: whoever reaches it may run code on the server.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from fedcal.core.errors import FedcalError
from fedcal.experiments.deploy.fleet import check_control, check_public_key, read_address, trusted
from fedcal.experiments.runs.engines.superlink import (
    CONNECTION,
    FlowerRun,
    commands,
    complaint,
    json_in,
    run_folder,
)
from fedcal.storage.atomic import path_of

ENDED = "finished"
"""What Flower's word for the state of a run begins with, once it is over."""


class Node(NamedTuple):
    """A site, as the SuperLink knows it.

    Attributes
    ----------
    number
        Flower's
    status
        in Flower's words: "online", "offline", "registered" (it was never here)
    name
        what its site is called in the run that was asked about; "" = it has not met that
    """

    number: str
    status: str
    name: str = ""


class Control:
    """The commands of `flwr` to one SuperLink."""

    def __init__(self, flower: FlowerRun) -> None:
        self.flower = flower

    def register(self, keys: Sequence[Path]) -> list[tuple[Path, str]]:
        """Let in the sites with these public keys; those that are known stay so.

        Returns
        -------
        list of (Path, str)
            Each key with Flower's number of its node, or Flower's words where it was known
            before: a key that was unregistered once cannot come back.

        Raises
        ------
        InputError
            If a file cannot be read, or is no public key.
        FedcalError
            If the SuperLink refuses a key, with its words.
        """
        for key in keys:
            check_public_key(key)
        nodes = []
        for key in keys:
            reply = self.flower.flwr(
                *("supernode", "register", key.resolve(), CONNECTION, "--name", key.stem),
                *("--format", "json"),
            )
            answer = json_in(reply)
            if not answer.get("success") and "already" not in reply:
                raise FedcalError(f"the SuperLink did not take {key}: {complaint(reply)}")
            nodes.append((key, str(answer["node-id"] if "node-id" in answer else complaint(reply))))
        return nodes

    def nodes(self) -> list[Node]:
        """All sites that are registered."""
        reply = self.flower.flwr("supernode", "list", CONNECTION, "--format", "json")
        content = json_in(reply)
        if "nodes" not in content:
            raise FedcalError(
                f"the SuperLink does not say which sites there are: {complaint(reply)}"
            )
        return [Node(str(one["node-id"]), str(one["status"])) for one in content["nodes"]]

    def revoke(self, node: str) -> None:
        """Let a site out, by Flower's number; its key can never come back.

        Raises FedcalError if the SuperLink refuses.
        """
        reply = self.flower.flwr("supernode", "unregister", node, CONNECTION, "--format", "json")
        if not json_in(reply).get("success"):
            raise FedcalError(f"site {node} was not unregistered: {complaint(reply)}")

    def stop(self, run_id: int) -> None:
        """End a run; FedcalError if the SuperLink does not."""
        reply = self.flower.flwr("stop", str(run_id), CONNECTION, "--format", "json")
        if not json_in(reply).get("success"):
            raise FedcalError(f"run {run_id} was not stopped: {complaint(reply)}")


@contextlib.contextmanager
def control(address: str, root_certificates: str | Path) -> Iterator[Control]:
    """Connect to the control API at HOST:PORT.

    Raises
    ------
    InputError
        If the address or the certificates are none, or Flower's commands are missing.
    FedcalError
        If nobody listens there, or not the SuperLink that the certificates are for.
    """
    at, certificates = read_address("--control", address), path_of(root_certificates)
    check_control(at, trusted(certificates))
    with run_folder() as folder:
        flower = FlowerRun(folder, commands("grpc"), {})
        flower.connect(str(at), certificates)
        yield Control(flower)
