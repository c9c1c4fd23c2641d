"""A session without neighbours on a lab's GPU."""

from perseus_ds.pipeline.events import Operation
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.silicon.lab import Load
from perseus_ds.silicon.lone_session import observing


def test_it_records_what_the_device_does(make_lab, tmp_path):
    lab = make_lab()
    with observing(lab, tmp_path) as session:
        for _ in range(3):
            session.iteration_begin(1, training=True)
            session.operation_begin(Operation(Kind.FORWARD, 0))
            lab.work(Load.GENTLE, 0.01)
            session.operation_end(Operation(Kind.FORWARD, 0))
            session.iteration_end()
            lab.synchronize()
        session.iteration_begin(1, training=True)
        latest = session._meter.measurements.latest()
    assert latest is not None
    assert [round(timed.duration_s, 6) for timed in latest.operations] == [0.01]
