"""The facts of a host are equal through ssh, Session Manager and Kubernetes."""

from __future__ import annotations

from pathlib import Path

from rollbook.testing import Lab
from rollbook.transports.kube import Kube
from rollbook.transports.ssh import Ssh
from rollbook.transports.ssm import Ssm
from tests.support.fake_aws import Node, fake_aws
from tests.support.fake_kube import fake_kube, needs_kubectl
from tests.support.launchers import snapshot, stable_facts


@needs_kubectl
def test_facts_are_equal_over_all_transports(lab: Lab, tmp_path: Path) -> None:
    """Facts are compared field by field; pods enter the node with chroot and with nsenter."""
    host = lab["node01"]
    host.overlay({"/etc/os-release": 'NAME="Only here"\nVERSION_ID="1"\n'})
    enter = ["nsenter", "--target", str(host.pid), "--mount", "--uts", "--net", "--pid", "--"]
    others = snapshot(Ssh(ssh_config=str(lab.ssh_config)), ["node01", "node02"])
    direct, expected = others["node01"], stable_facts(others["node01"].facts)
    assert len(expected) >= 12
    assert stable_facts(others["node02"].facts) != expected  # so the comparison can fail
    with fake_aws([Node("i-0000000000000001a", prefix=tuple(enter))]) as service:
        ssm = Ssm(endpoint_url=service.endpoint)
        found = {"ssm": snapshot(ssm, ["i-0000000000000001a"])["i-0000000000000001a"]}
    with fake_kube(tmp_path) as (cluster, config):
        node = cluster.nodes[0]["metadata"]["name"]
        cluster.prefixes[node] = enter
        found["chroot"] = snapshot(Kube(kubeconfig=str(config)), [node])[node]
        found["nsenter"] = snapshot(Kube(kubeconfig=str(config), kube_privileged=True), [node])[node]
    for transport, host_result in found.items():
        assert (transport, host_result.status, host_result.reason) == (transport, direct.status, direct.reason)
        assert host_result.machine_id == direct.machine_id
        facts = stable_facts(host_result.facts)
        assert facts.keys() == expected.keys()
        for name, fact in facts.items():
            assert (transport, name, fact) == (transport, name, expected[name])
