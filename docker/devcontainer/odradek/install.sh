#!/bin/sh
# Installs odradek into /opt/odradek, and an entrypoint that starts a broker with the container. It runs as root while
# the image of a dev container is built. VERSION and SERVE are the options of devcontainer-feature.json. If Python is
# missing, it is installed on Debian and Ubuntu. On other systems, the image must contain Python 3.11 or later.
set -eu
version=${VERSION:-latest}
package=odradek
[ "$version" = latest ] || package="odradek==$version"

usable() { command -v python3 >/dev/null && python3 -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))'; }
if ! usable 2>/dev/null && command -v apt-get >/dev/null; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-venv ca-certificates
    rm -rf /var/lib/apt/lists/*
fi
usable || { echo 'odradek needs Python 3.11 or later with venv' >&2; exit 1; }

python3 -m venv /opt/odradek
/opt/odradek/bin/pip install --no-cache-dir --disable-pip-version-check "$package"
ln -sf /opt/odradek/bin/odradek /usr/local/bin/odradek
install -d -m 1777 /var/lib/odradek
install -d /usr/local/share/odradek
{
    echo '#!/bin/sh'
    if [ "${SERVE:-true}" = true ]; then
        echo '/opt/odradek/bin/odradek serve --data-dir /var/lib/odradek/data >>/var/lib/odradek/log 2>&1 &'
    fi
    echo 'exec "$@"'
} >/usr/local/share/odradek/entrypoint
chmod 755 /usr/local/share/odradek/entrypoint
