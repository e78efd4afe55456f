"""The checks as pytest tests over testinfra hosts: one collector call a host, one thin test a check.

::

    pytest --pyargs provision.verify.testinfra --hosts=ssh://gpu001,ssh://gpu002 --provision-lock provision.lock

Tests of your own can use what was collected; name the plugin in your ``conftest.py``::

    pytest_plugins = ["provision.verify.testinfra.plugin"]

    def test_all_gpus_are_there(gpu_snapshot):
        assert len(gpu_snapshot.smi.gpus) == 8
"""
