import time


def wait_for(condition, timeout_s=5.0):
    """Wait until a condition holds and return how long it took."""
    begin_s = time.monotonic()
    while not condition():
        assert time.monotonic() - begin_s < timeout_s, "it never came true"
        time.sleep(0.002)
    return time.monotonic() - begin_s
