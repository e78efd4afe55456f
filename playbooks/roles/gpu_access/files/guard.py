"""Load firewall rules so that they go away by themselves unless somebody who came in anew keeps them.

``arm SECONDS`` remembers the rules file and starts the timer that puts it back; ``load`` loads the new file; ``keep``
stops the timer. Standard input holds this text; Python 3.8 and the standard library alone.
"""

import os
import shutil
import subprocess
import sys

RULES = "/etc/nftables.d/provision.nft"
FOLDER = "/run/provision-access"
BEFORE = FOLDER + "/before.nft"
TIMER = "provision-access-revert"
NFT = "/usr/sbin/nft"

# What the timer runs: a shell is always there, and no value of anybody stands in this text.
REVERT = """
if [ -e {before} ]; then
    cp -p {before} {rules} && {nft} -f {rules}
else
    rm -f {rules}
    {nft} delete table inet provision
fi
rm -rf {folder}
""".format(before=BEFORE, rules=RULES, nft=NFT, folder=FOLDER)


def call(*argv):
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        sys.exit("%s: %s" % (" ".join(argv[:3]), done.stdout.decode("utf-8", "replace").strip()))


def stop_timer():
    for unit in (TIMER + ".timer", TIMER + ".service"):
        for verb in ("stop", "reset-failed"):
            argv = ["systemctl", verb, unit]
            subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


def arm(seconds):
    stop_timer()
    os.makedirs(FOLDER, mode=0o700, exist_ok=True)
    if os.path.exists(BEFORE):
        os.unlink(BEFORE)
    if os.path.exists(RULES):
        shutil.copy2(RULES, BEFORE)
    call("systemd-run", "--quiet", "--collect", "--unit=" + TIMER, "--on-active=%d" % seconds,
         "--timer-property=AccuracySec=1s", "/bin/sh", "-c", REVERT)  # fmt: skip


def load():
    # Without the timer nothing would take these rules back: on a slow node it may have run out before they were here.
    if not os.path.isdir(FOLDER):
        sys.exit("the time ran out before the rules were loaded: raise gpu_access_revert_seconds")
    call(NFT, "-c", "-f", RULES)
    call(NFT, "-f", RULES)


def keep():
    if not os.path.isdir(FOLDER):
        sys.exit("the rules were taken back before they could be kept")
    stop_timer()
    shutil.rmtree(FOLDER)


if sys.argv[1] == "arm":
    arm(int(sys.argv[2]))
elif sys.argv[1] == "load":
    load()
else:
    keep()
