"""Two clocks, tied by handshakes."""

from perseus_ds.silicon.lab import Handshake, between


def test_the_best_handshake_of_each_half_ties_the_clocks():
    good = [Handshake(99.999, 0.0, 100.001), Handshake(200.0, 100.001, 200.002)]
    poor = [Handshake(100.5, 1.0, 102.5), Handshake(190.0, 95.0, 201.0)]
    on_host = between([good[0], poor[0], poor[1], good[1]])
    assert abs(on_host(0.0) - 100.0) < 1e-9
    assert abs(on_host(100.001) - 200.001) < 1e-9
    assert abs(on_host(50.0) - 150.0) < 1e-9
