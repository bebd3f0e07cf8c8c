"""Takes the steering program away from the sockets of a process, which then get datagrams by addresses and ports alone.

Usage: forget_steering.py PID. Prints how many groups of sockets lost their program.
"""

import ctypes
import os
import socket
import sys

SO_DETACH_REUSEPORT_BPF = 68
SYS_PIDFD_GETFD = 438

process = int(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
pidfd = os.pidfd_open(process)
forgotten = 0
for name in os.listdir(f"/proc/{process}/fd"):
    if not os.readlink(f"/proc/{process}/fd/{name}").startswith("socket:"):
        continue
    copy = libc.syscall(SYS_PIDFD_GETFD, pidfd, int(name), 0)
    if copy < 0:
        sys.exit(f"descriptor {name}: {os.strerror(ctypes.get_errno())}")
    with socket.socket(fileno=copy) as borrowed:
        try:
            borrowed.setsockopt(socket.SOL_SOCKET, SO_DETACH_REUSEPORT_BPF, 0)
            forgotten += 1
        except OSError:
            pass  # It has no program, or its group has lost it already.
print(forgotten)
