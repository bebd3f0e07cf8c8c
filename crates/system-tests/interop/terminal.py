"""Runs a program on a terminal of its own, and ends it as a person or the system would.

terminal.py END PART PROGRAM [ARGUMENT...]: when the terminal shows PART, END is done: a key, or `TERM`. Prints the exit status, whether
the terminal's modes are as before, and whether its screen and its cursor were given back.
"""
import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios

end, part, *program = sys.argv[1:]
ours, theirs = pty.openpty()
fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 140, 0, 0))
before = termios.tcgetattr(theirs)
process = subprocess.Popen(program, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
                           env={**os.environ, "TERM": "xterm-256color"})
shown = b""
while part.encode() not in shown:
    shown += os.read(ours, 1 << 16)
print("raw:", not termios.tcgetattr(theirs)[3] & termios.ICANON, flush=True)
if end == "TERM":
    process.send_signal(signal.SIGTERM)
else:
    os.write(ours, end.encode())
status = process.wait()
os.set_blocking(ours, False)
try:
    while more := os.read(ours, 1 << 16):
        shown += more
except BlockingIOError:
    pass
print("status:", status)
print("modes:", termios.tcgetattr(theirs) == before)
print("screen:", shown.rfind(b"\x1b[?1049l") > shown.rfind(b"\x1b[?1049h") >= 0)
print("cursor:", shown.rfind(b"\x1b[?25h") > shown.rfind(b"\x1b[?25l"))
print("done", flush=True)
