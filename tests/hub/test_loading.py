"""After a publication: do the runtimes find everything in the Hub's cache, which is a tree of links?"""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.engine

SCRIPT = """
import numpy as np, onnx
from onnx import TensorProto, helper, numpy_helper
from hub_exporter import hub
from hub_exporter.records import Component, EngineOptions, ExportOutcome, Job, JobResult
from hub_exporter.run import load_again

def write(folder):
    '''A graph whose weights lie beside it, as those of a large model do.'''
    weight = numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    io = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 64]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", io[:1], io[1:], [weight])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    folder.mkdir(parents=True)
    onnx.save(made, folder / "model.onnx", save_as_external_data=True, location="model.onnx_data", size_threshold=0)

work = Path(tempfile.mkdtemp())
write(work / "files" / "onnx")
api.create_repo("org/loading", exist_ok=True)
commit = api.upload_folder(repo_id="org/loading", folder_path=work / "files").oid
component = Component(name="model", file="model.onnx", inputs=(), outputs=())
outcome = ExportOutcome(components=(component,), layout="encoder")
job = Job(name="m.onnx.fp32", model=model(), backend="onnx", variant="fp32", engine=EngineOptions(), dataset=None,
          runner="here", python="3.12", time_limit=60.0, minutes=5, target="org/loading")
result = JobResult(job=job.name, backend="onnx", variant="fp32", status="passed", folder="onnx", export=outcome)
names = ["onnx/model.onnx", "onnx/model.onnx_data"]
whole = hub.fresh_copy("org/loading", commit, names, work / "cache")
half = hub.fresh_copy("org/loading", commit, names[:1], work / "other")
linked = (whole / names[1]).is_symlink()
tell([linked, load_again((job,), (result,), whole, work / "1"), load_again((job,), (result,), half, work / "2")])
"""


def test_external_data_is_found_through_the_links_and_missed_where_it_is_missing(hub):
    linked, whole, half = hub.python("from steps import *\n" + SCRIPT)

    assert linked
    assert whole is None
    assert half.startswith("`m.onnx.fp32`: ")
    assert "model.onnx_data" in half
