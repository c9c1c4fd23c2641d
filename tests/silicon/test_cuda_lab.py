"""The lab on a real GPU: without one, what can be said is that it fits the interface and its kernels."""

import ast
import inspect
import re

from perseus_ds.silicon import cuda_clocked, cuda_lab
from perseus_ds.silicon.cuda_lab import CudaLab
from perseus_ds.silicon.kernels import SOURCE
from perseus_ds.silicon.lab import Lab
from perseus_ds.silicon.virtual_lab import VirtualLab


def test_both_labs_have_the_methods_of_the_interface():
    for name, method in inspect.getmembers(Lab, inspect.isfunction):
        if not name.startswith("_"):
            wanted = [one.kind for one in inspect.signature(method).parameters.values()]
            for kind in (CudaLab, VirtualLab):
                assert [one.kind for one in inspect.signature(getattr(kind, name)).parameters.values()] == wanted, name


def test_each_launch_gives_its_kernel_as_many_arguments_as_it_takes():
    takes = {name: len(found.split(",")) for name, found in re.findall(r"void (\w+)\(([^)]*)\)", SOURCE)}
    launches = [
        (node.args[0].value, len(node.args) - 1)
        for module in (cuda_lab, cuda_clocked)
        for node in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "_launch"
    ]
    assert {name for name, _ in launches} == {*cuda_lab._KERNELS}
    assert all(takes[name] == count for name, count in launches)
