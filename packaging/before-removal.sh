# A service whose program goes ends in order, and is not started at the next boot.
if [ -d /run/systemd/system ]; then
    systemctl --quiet disable --now memtide.service || true
fi
# Settings of the kernel that a killed memtide left changed go back while the program is still there.
# What cannot be put back is said, and does not keep the package from going.
if [ -x /usr/bin/memtide ] && [ -d /run/memtide ]; then
    /usr/bin/memtide doctor --restore || true
fi
