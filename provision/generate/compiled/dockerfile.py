# Written by tools/compile_templates.py with jinja2's compiler from images/Dockerfile.j2. Do not edit.
# ruff: noqa
# mypy: ignore-errors
# fmt: off
from provision.generate.engine import TemplateRuntimeError, environment, internalcode, missing

SOURCE_DIGEST = "d8a9eda938ae6c566254b12c994e28940b7fa8d85a8446dc90deb270932fb1e9"

def root(context, missing=missing, environment=environment):
    resolve = context.resolve_or_missing
    undefined = environment.undefined
    concat = environment.concat
    if 0:
        yield None
    l_0_syntax = resolve('syntax')
    l_0_lock_digest = resolve('lock_digest')
    l_0_name = resolve('name')
    l_0_facts_date = resolve('facts_date')
    l_0_build_command = resolve('build_command')
    l_0_cuda_base = resolve('cuda_base')
    l_0_cuda = resolve('cuda')
    l_0_triplet = resolve('triplet')
    l_0_base = resolve('base')
    l_0_python = resolve('python')
    l_0_frontend = resolve('frontend')
    l_0_has_ca_cert = resolve('has_ca_cert')
    l_0_pip_environment = resolve('pip_environment')
    l_0_pip_options = resolve('pip_options')
    l_0_compile_base = resolve('compile_base')
    l_0_requirement_files = resolve('requirement_files')
    l_0_steps = resolve('steps')
    l_0_user_steps = resolve('user_steps')
    l_0_user_files = resolve('user_files')
    l_0_is_devel = resolve('is_devel')
    l_0_library_path = resolve('library_path')
    l_0_uid = resolve('uid')
    l_0_apt = resolve('apt')
    l_0_apt_setup = resolve('apt_setup')
    l_0_has_before_hook = resolve('has_before_hook')
    l_0_has_cuda = resolve('has_cuda')
    l_0_link = resolve('link')
    l_0_early_imports = resolve('early_imports')
    l_0_imports = resolve('imports')
    l_0_is_compiled = resolve('is_compiled')
    l_0_arch_list = resolve('arch_list')
    l_0_build_apt = resolve('build_apt')
    l_0_builds = resolve('builds')
    l_0_build_environment = resolve('build_environment')
    l_0_uv = resolve('uv')
    l_0_index_options = resolve('index_options')
    l_0_has_after_hook = resolve('has_after_hook')
    l_0_init = resolve('init')
    l_0_is_dev = resolve('is_dev')
    l_0_driver_minimum = resolve('driver_minimum')
    l_0_labels = resolve('labels')
    l_0_ports = resolve('ports')
    l_0_copies = resolve('copies')
    l_0_command_json = resolve('command_json')
    try:
        t_1 = environment.filters['sh']
    except KeyError:

        @internalcode
        def t_1(*unused):
            raise TemplateRuntimeError("No filter named 'sh' found.")
    pass
    if undefined(name='syntax') if l_0_syntax is missing else l_0_syntax:
        pass
        yield '# syntax='
        yield str(environment.finalize(undefined(name='syntax') if l_0_syntax is missing else l_0_syntax))
        yield '\n'
    yield '# provision.lock '
    yield str(environment.finalize(undefined(name='lock_digest') if l_0_lock_digest is missing else l_0_lock_digest))
    yield '\n# '
    yield str(environment.finalize(undefined(name='name') if l_0_name is missing else l_0_name))
    yield ': facts of '
    yield str(environment.finalize(undefined(name='facts_date') if l_0_facts_date is missing else l_0_facts_date))
    yield '. Written by `provision image`; edits here count as drift.\n# Build: '
    yield str(environment.finalize(undefined(name='build_command') if l_0_build_command is missing else l_0_build_command))
    yield '\n'
    if undefined(name='cuda_base') if l_0_cuda_base is missing else l_0_cuda_base:
        pass
        yield '\n# Only the libraries of this stage reach the image.\nFROM '
        yield str(environment.finalize(undefined(name='cuda_base') if l_0_cuda_base is missing else l_0_cuda_base))
        yield ' AS cuda\nRUN mkdir -p /layer && \\\n    cp -a --parents -t /layer /usr/local/cuda-'
        yield str(environment.finalize(undefined(name='cuda') if l_0_cuda is missing else l_0_cuda))
        yield ' && \\\n    find /etc/alternatives /usr/include /usr/lib/'
        yield str(environment.finalize(undefined(name='triplet') if l_0_triplet is missing else l_0_triplet))
        yield " \\\n      \\( -name 'libcudnn*' -o -name 'cudnn*' -o -name 'libnccl*' -o -name 'nccl*' \\) \\\n      -exec cp -a --parents -t /layer {} + && \\\n    ln -s cuda-"
        yield str(environment.finalize(undefined(name='cuda') if l_0_cuda is missing else l_0_cuda))
        yield ' /layer/usr/local/cuda\n'
    yield '\nFROM '
    yield str(environment.finalize(undefined(name='base') if l_0_base is missing else l_0_base))
    yield ' AS base\n'
    if undefined(name='python') if l_0_python is missing else l_0_python:
        pass
        yield '\nFROM base AS tools\n'
        if (undefined(name='frontend') if l_0_frontend is missing else l_0_frontend) == 'classic':
            pass
            yield 'COPY '
            yield str(environment.finalize('provision-ca.crt ' if (undefined(name='has_ca_cert') if l_0_has_ca_cert is missing else l_0_has_ca_cert) else ''))
            yield 'tools.txt /build/\nRUN python='
            yield str(environment.finalize(undefined(name='python') if l_0_python is missing else l_0_python))
            yield ' && \\\n'
        else:
            pass
            yield 'RUN --mount=type=bind,source=tools.txt,target=/build/tools.txt \\\n'
            if undefined(name='has_ca_cert') if l_0_has_ca_cert is missing else l_0_has_ca_cert:
                pass
                yield '    --mount=type=bind,source=provision-ca.crt,target=/build/provision-ca.crt \\\n'
            yield '    python='
            yield str(environment.finalize(undefined(name='python') if l_0_python is missing else l_0_python))
            yield ' && \\\n'
        yield '    if ! "$python" -c \'import pip\' 2> /dev/null; then \\\n      "$python" -m venv /opt/seed && python=/opt/seed/bin/python; \\\n    fi && \\\n    '
        yield str(environment.finalize(undefined(name='pip_environment') if l_0_pip_environment is missing else l_0_pip_environment))
        yield '"$python" -m pip install '
        yield str(environment.finalize(undefined(name='pip_options') if l_0_pip_options is missing else l_0_pip_options))
        yield ' \\\n      --no-cache-dir --no-deps --require-hashes --target /opt/tools -r /build/tools.txt'
        if undefined(name='compile_base') if l_0_compile_base is missing else l_0_compile_base:
            pass
            yield ' && \\\n    cp -r "$("$python" -c \'import os, pip; print(os.path.dirname(pip.__file__))\')" /opt/tools/pip'
        yield '\n'
    if (undefined(name='python') if l_0_python is missing else l_0_python) and (undefined(name='frontend') if l_0_frontend is missing else l_0_frontend) == 'classic':
        pass
        yield '\n# The classic builder has no mounts, so the environment is made here and copied layer by layer; hard links keep the\n# layers free of cost, and a file belongs to the layer whose installation wrote it last.\nFROM tools AS locked\nENV PATH="/opt/venv/bin:${PATH}" \\\n    VIRTUAL_ENV=/opt/venv\nCOPY '
        yield str(environment.finalize(undefined(name='requirement_files') if l_0_requirement_files is missing else l_0_requirement_files))
        yield ' /build/\nRUN mkdir -p /layers/venv && \\\n    '
        yield str(environment.finalize(undefined(name='python') if l_0_python is missing else l_0_python))
        yield ' -m venv --without-pip /opt/venv && \\\n    cp -al --parents -t /layers/venv /opt/venv'
        for l_1_step in undefined(name='steps') if l_0_steps is missing else l_0_steps:
            _loop_vars = {}
            pass
            yield ' && \\\n    touch /build/stamp && \\\n    '
            yield str(environment.finalize(undefined(name='uv') if l_0_uv is missing else l_0_uv))
            yield ' \\\n      '
            yield str(environment.finalize(environment.getattr(l_1_step, 'options')))
            yield ' -r /build/'
            yield str(environment.finalize(environment.getattr(l_1_step, 'file')))
            yield ' && \\\n    python /build/compile_bytecode.py && \\\n    mkdir -p /layers/'
            yield str(environment.finalize(environment.getattr(l_1_step, 'layer')))
            yield ' && \\\n    find /opt/venv -cnewer /build/stamp ! -type d -exec cp -al --parents -t /layers/'
            yield str(environment.finalize(environment.getattr(l_1_step, 'layer')))
            yield ' {} +'
        l_1_step = missing
        yield '\n'
        if undefined(name='user_steps') if l_0_user_steps is missing else l_0_user_steps:
            pass
            yield '\nFROM locked AS user\nCOPY '
            yield str(environment.finalize(undefined(name='user_files') if l_0_user_files is missing else l_0_user_files))
            yield ' /build/\nRUN mkdir -p /layers/user && \\\n    touch /build/stamp'
            for l_1_step in undefined(name='user_steps') if l_0_user_steps is missing else l_0_user_steps:
                l_1_uv_for_user = resolve('uv_for_user')
                _loop_vars = {}
                pass
                yield ' && \\\n    '
                yield str(environment.finalize((undefined(name='uv') if l_0_uv is missing else l_0_uv) if environment.getattr(l_1_step, 'is_locked') else undefined(name='uv_for_user') if l_1_uv_for_user is missing else l_1_uv_for_user))
                yield ' \\\n      '
                yield str(environment.finalize(environment.getattr(l_1_step, 'options')))
                yield ' -r /build/'
                yield str(environment.finalize(environment.getattr(l_1_step, 'file')))
            l_1_step = l_1_uv_for_user = missing
            yield ' && \\\n    python /build/compile_bytecode.py && \\\n    find /opt/venv -cnewer /build/stamp ! -type d -exec cp -al --parents -t /layers/user {} +\n'
    yield '\nFROM base AS '
    yield str(environment.finalize('framework' if (undefined(name='compile_base') if l_0_compile_base is missing else l_0_compile_base) else 'runtime'))
    yield '\n'
    if undefined(name='python') if l_0_python is missing else l_0_python:
        pass
        yield 'ENV PATH="/opt/venv/bin:'
        if undefined(name='is_devel') if l_0_is_devel is missing else l_0_is_devel:
            pass
            yield '/usr/local/cuda/bin:'
        yield '${PATH}" \\\n    VIRTUAL_ENV=/opt/venv \\\n    PYTHONDONTWRITEBYTECODE=1 \\\n    PYTHONUNBUFFERED=1'
        if undefined(name='is_devel') if l_0_is_devel is missing else l_0_is_devel:
            pass
            yield ' \\\n    CUDA_HOME=/usr/local/cuda'
        if undefined(name='library_path') if l_0_library_path is missing else l_0_library_path:
            pass
            yield ' \\\n    LD_LIBRARY_PATH='
            yield str(environment.finalize(undefined(name='library_path') if l_0_library_path is missing else l_0_library_path))
        yield '\n'
    yield "RUN printf 'provision:x:"
    yield str(environment.finalize(undefined(name='uid') if l_0_uid is missing else l_0_uid))
    yield ":\\n' >> /etc/group && \\\n    printf 'provision:x:"
    yield str(environment.finalize(undefined(name='uid') if l_0_uid is missing else l_0_uid))
    yield ':'
    yield str(environment.finalize(undefined(name='uid') if l_0_uid is missing else l_0_uid))
    yield "::/home/provision:/bin/sh\\n' >> /etc/passwd && \\\n    mkdir -p /home/provision /workspace && \\\n    chown "
    yield str(environment.finalize(undefined(name='uid') if l_0_uid is missing else l_0_uid))
    yield ':'
    yield str(environment.finalize(undefined(name='uid') if l_0_uid is missing else l_0_uid))
    yield ' /home/provision /workspace'
    if undefined(name='python') if l_0_python is missing else l_0_python:
        pass
        yield ' && \\\n    rm -rf /usr/local/bin/pip* /usr/local/lib/'
        yield str(environment.finalize(undefined(name='python') if l_0_python is missing else l_0_python))
        yield '/site-packages/pip /usr/local/lib/'
        yield str(environment.finalize(undefined(name='python') if l_0_python is missing else l_0_python))
        yield '/site-packages/pip-* \\\n      /usr/bin/pip* /usr/lib/python3/dist-packages/pip /usr/lib/python3/dist-packages/pip-*'
        if (undefined(name='frontend') if l_0_frontend is missing else l_0_frontend) != 'classic':
            pass
            yield ' && \\\n    '
            yield str(environment.finalize(undefined(name='python') if l_0_python is missing else l_0_python))
            yield ' -m venv --without-pip /opt/venv'
    yield '\n'
    if undefined(name='apt') if l_0_apt is missing else l_0_apt:
        pass
        if (undefined(name='apt_setup') if l_0_apt_setup is missing else l_0_apt_setup) and (undefined(name='frontend') if l_0_frontend is missing else l_0_frontend) == 'classic':
            pass
            yield 'COPY apt_snapshot.sh /build/\n'
        yield 'RUN '
        if (undefined(name='apt_setup') if l_0_apt_setup is missing else l_0_apt_setup) and (undefined(name='frontend') if l_0_frontend is missing else l_0_frontend) != 'classic':
            pass
            yield '--mount=type=bind,source=apt_snapshot.sh,target=/build/apt_snapshot.sh \\\n    '
        yield str(environment.finalize(undefined(name='apt_setup') if l_0_apt_setup is missing else l_0_apt_setup))
        yield 'apt-get update && \\\n    apt-get install -y --no-install-recommends \\\n'
        for l_1_package in undefined(name='apt') if l_0_apt is missing else l_0_apt:
            _loop_vars = {}
            pass
            yield '      '
            yield str(environment.finalize(t_1(l_1_package)))
            yield ' \\\n'
        l_1_package = missing
        yield '      && \\\n    rm -rf /var/lib/apt/lists/* /var/log/apt /var/log/dpkg.log /var/log/alternatives.log /var/cache/ldconfig/aux-cache'
        if undefined(name='apt_setup') if l_0_apt_setup is missing else l_0_apt_setup:
            pass
            yield ' /tmp/apt'
        yield '\n'
    if undefined(name='has_before_hook') if l_0_has_before_hook is missing else l_0_has_before_hook:
        pass
        if (undefined(name='frontend') if l_0_frontend is missing else l_0_frontend) == 'classic':
            pass
            yield 'COPY hooks/before-packages.sh /build/hooks/\nRUN sh -eu /build/hooks/before-packages.sh\n'
        else:
            pass
            yield 'RUN --mount=type=bind,source=hooks/before-packages.sh,target=/build/hooks/before-packages.sh \\\n    sh -eu /build/hooks/before-packages.sh\n'
    if undefined(name='has_cuda') if l_0_has_cuda is missing else l_0_has_cuda:
        pass
        yield 'COPY '
        yield str(environment.finalize(undefined(name='link') if l_0_link is missing else l_0_link))
        yield "--from=cuda /layer/ /\nRUN printf '/usr/local/cuda-"
        yield str(environment.finalize(undefined(name='cuda') if l_0_cuda is missing else l_0_cuda))
        yield "/lib64\\n' > /etc/ld.so.conf.d/provision-cuda.conf && \\\n    ldconfig && \\\n    rm -f /var/cache/ldconfig/aux-cache\n"
    if (undefined(name='frontend') if l_0_frontend is missing else l_0_frontend) == 'classic':
        pass
        if undefined(name='python') if l_0_python is missing else l_0_python:
            pass
            yield 'COPY --from=locked /layers/venv/ /\n'
            for l_1_step in undefined(name='steps') if l_0_steps is missing else l_0_steps:
                _loop_vars = {}
                pass
                yield 'COPY --from=locked /layers/'
                yield str(environment.finalize(environment.getattr(l_1_step, 'layer')))
                yield '/ /\n'
            l_1_step = missing
            yield 'COPY verify.py expect.json /opt/provision/\nRUN python /opt/provision/verify.py --static --lock /opt/provision/expect.json'
            yield str(environment.finalize(undefined(name='early_imports') if l_0_early_imports is missing else l_0_early_imports))
            yield '\n'
            if undefined(name='user_steps') if l_0_user_steps is missing else l_0_user_steps:
                pass
                yield 'COPY --from=user /layers/user/ /\nRUN python /opt/provision/verify.py --packages --lock /opt/provision/expect.json'
                yield str(environment.finalize(undefined(name='imports') if l_0_imports is missing else l_0_imports))
                yield '\n'
    else:
        pass
        for l_1_step in undefined(name='steps') if l_0_steps is missing else l_0_steps:
            _loop_vars = {}
            pass
            yield 'RUN --mount=type=bind,from=tools,source=/opt/tools,target=/opt/tools \\\n'
            if undefined(name='has_ca_cert') if l_0_has_ca_cert is missing else l_0_has_ca_cert:
                pass
                yield '    --mount=type=bind,source=provision-ca.crt,target=/build/provision-ca.crt \\\n'
            yield '    --mount=type=bind,source='
            yield str(environment.finalize(environment.getattr(l_1_step, 'file')))
            yield ',target=/build/'
            yield str(environment.finalize(environment.getattr(l_1_step, 'file')))
            yield ' \\\n'
            if environment.getattr(l_1_step, 'is_constrained'):
                pass
                yield '    --mount=type=bind,source=constraints.txt,target=/build/constraints.txt \\\n'
            yield '    --mount=type=bind,source=compile_bytecode.py,target=/build/compile_bytecode.py \\\n    '
            yield str(environment.finalize(undefined(name='uv') if l_0_uv is missing else l_0_uv))
            yield ' \\\n      '
            yield str(environment.finalize(environment.getattr(l_1_step, 'options')))
            yield ' -r /build/'
            yield str(environment.finalize(environment.getattr(l_1_step, 'file')))
            yield ' && \\\n    python /build/compile_bytecode.py\n'
        l_1_step = missing
        if undefined(name='python') if l_0_python is missing else l_0_python:
            pass
            yield 'RUN --mount=type=bind,source=verify.py,target=/build/verify.py \\\n    --mount=type=bind,source=expect.json,target=/build/expect.json \\\n    python /build/verify.py --static --lock /build/expect.json'
            yield str(environment.finalize(undefined(name='early_imports') if l_0_early_imports is missing else l_0_early_imports))
            yield '\n'
            if undefined(name='compile_base') if l_0_compile_base is missing else l_0_compile_base:
                pass
                yield '\n# Builds what exists only as source'
                if undefined(name='is_compiled') if l_0_is_compiled is missing else l_0_is_compiled:
                    pass
                    yield ', with nvcc and against the framework'
                yield '. Only the wheels of this stage are used.\nFROM '
                yield str(environment.finalize(undefined(name='compile_base') if l_0_compile_base is missing else l_0_compile_base))
                yield ' AS compile\n'
                if undefined(name='is_compiled') if l_0_is_compiled is missing else l_0_is_compiled:
                    pass
                    yield 'ENV PATH="/opt/venv/bin:/usr/local/cuda/bin:${PATH}" \\\n    VIRTUAL_ENV=/opt/venv \\\n    CUDA_HOME=/usr/local/cuda \\\n    TORCH_CUDA_ARCH_LIST="'
                    yield str(environment.finalize(undefined(name='arch_list') if l_0_arch_list is missing else l_0_arch_list))
                    yield '"\n'
                    if undefined(name='build_apt') if l_0_build_apt is missing else l_0_build_apt:
                        pass
                        if (undefined(name='apt_setup') if l_0_apt_setup is missing else l_0_apt_setup) and (undefined(name='frontend') if l_0_frontend is missing else l_0_frontend) == 'classic':
                            pass
                            yield 'COPY apt_snapshot.sh /build/\n'
                        yield 'RUN '
                        if (undefined(name='apt_setup') if l_0_apt_setup is missing else l_0_apt_setup) and (undefined(name='frontend') if l_0_frontend is missing else l_0_frontend) != 'classic':
                            pass
                            yield '--mount=type=bind,source=apt_snapshot.sh,target=/build/apt_snapshot.sh \\\n    '
                        yield str(environment.finalize(undefined(name='apt_setup') if l_0_apt_setup is missing else l_0_apt_setup))
                        yield 'apt-get update && \\\n    apt-get install -y --no-install-recommends \\\n'
                        for l_1_package in undefined(name='build_apt') if l_0_build_apt is missing else l_0_build_apt:
                            _loop_vars = {}
                            pass
                            yield '      '
                            yield str(environment.finalize(t_1(l_1_package)))
                            yield ' \\\n'
                        l_1_package = missing
                        yield '      && \\\n    rm -rf /var/lib/apt/lists/*'
                        if undefined(name='apt_setup') if l_0_apt_setup is missing else l_0_apt_setup:
                            pass
                            yield ' /tmp/apt'
                        yield '\n'
                    if undefined(name='cuda_base') if l_0_cuda_base is missing else l_0_cuda_base:
                        pass
                        yield 'COPY '
                        yield str(environment.finalize(undefined(name='link') if l_0_link is missing else l_0_link))
                        yield '--from=cuda /layer/ /\n'
                yield 'ARG MAX_JOBS\nRUN --mount=type=bind,from=tools,source=/opt/tools,target=/opt/tools \\\n'
                if undefined(name='is_compiled') if l_0_is_compiled is missing else l_0_is_compiled:
                    pass
                    yield '    --mount=type=bind,from=framework,source=/opt/venv,target=/opt/venv,rw \\\n'
                if undefined(name='has_ca_cert') if l_0_has_ca_cert is missing else l_0_has_ca_cert:
                    pass
                    yield '    --mount=type=bind,source=provision-ca.crt,target=/build/provision-ca.crt \\\n'
                for l_1_build in undefined(name='builds') if l_0_builds is missing else l_0_builds:
                    _loop_vars = {}
                    pass
                    yield '    --mount=type=bind,source='
                    yield str(environment.finalize(environment.getattr(l_1_build, 'file')))
                    yield ',target=/build/'
                    yield str(environment.finalize(environment.getattr(l_1_build, 'file')))
                    yield ' \\\n'
                l_1_build = missing
                if undefined(name='build_environment') if l_0_build_environment is missing else l_0_build_environment:
                    pass
                    yield '    --mount=type=bind,source=build-constraints.txt,target=/build/build-constraints.txt \\\n'
                if undefined(name='is_compiled') if l_0_is_compiled is missing else l_0_is_compiled:
                    pass
                    yield '    --mount=type=bind,source=constraints.txt,target=/build/constraints.txt \\\n'
                yield '    mkdir -p /wheels'
                if undefined(name='is_compiled') if l_0_is_compiled is missing else l_0_is_compiled:
                    pass
                    yield ' && \\\n    '
                    yield str(environment.finalize(undefined(name='uv') if l_0_uv is missing else l_0_uv))
                    yield ' \\\n      --constraint /build/constraints.txt --only-binary :all:'
                    yield str(environment.finalize(undefined(name='index_options') if l_0_index_options is missing else l_0_index_options))
                    yield ' ninja packaging psutil setuptools wheel'
                for l_1_build in undefined(name='builds') if l_0_builds is missing else l_0_builds:
                    _loop_vars = {}
                    pass
                    yield ' && \\\n    '
                    yield str(environment.finalize(undefined(name='pip_environment') if l_0_pip_environment is missing else l_0_pip_environment))
                    yield str(environment.finalize(undefined(name='build_environment') if l_0_build_environment is missing else l_0_build_environment))
                    yield 'PYTHONPATH=/opt/tools '
                    yield str(environment.finalize('python' if (undefined(name='is_compiled') if l_0_is_compiled is missing else l_0_is_compiled) else undefined(name='python') if l_0_python is missing else l_0_python))
                    yield ' -m pip wheel '
                    yield str(environment.finalize(undefined(name='pip_options') if l_0_pip_options is missing else l_0_pip_options))
                    yield ' \\\n      --no-cache-dir --no-deps'
                    yield str(environment.finalize(environment.getattr(l_1_build, 'options')))
                    yield ' --wheel-dir /wheels -r /build/'
                    yield str(environment.finalize(environment.getattr(l_1_build, 'file')))
                l_1_build = missing
                yield '\n\nFROM framework AS runtime\n'
            for l_1_step in undefined(name='user_steps') if l_0_user_steps is missing else l_0_user_steps:
                l_1_uv_for_user = resolve('uv_for_user')
                _loop_vars = {}
                pass
                yield 'RUN --mount=type=bind,from=tools,source=/opt/tools,target=/opt/tools \\\n'
                if not environment.getattr(l_1_step, 'is_locked'):
                    pass
                    yield '    --mount=type=cache,id=provision-uv,target=/root/.cache/uv \\\n'
                if environment.getattr(l_1_step, 'has_wheels'):
                    pass
                    yield '    --mount=type=bind,from=compile,source=/wheels,target=/wheels \\\n'
                if undefined(name='has_ca_cert') if l_0_has_ca_cert is missing else l_0_has_ca_cert:
                    pass
                    yield '    --mount=type=bind,source=provision-ca.crt,target=/build/provision-ca.crt \\\n'
                if environment.getattr(l_1_step, 'file'):
                    pass
                    yield '    --mount=type=bind,source='
                    yield str(environment.finalize(environment.getattr(l_1_step, 'file')))
                    yield ',target=/build/'
                    yield str(environment.finalize(environment.getattr(l_1_step, 'file')))
                    yield ' \\\n'
                if environment.getattr(l_1_step, 'is_constrained'):
                    pass
                    yield '    --mount=type=bind,source=constraints.txt,target=/build/constraints.txt \\\n'
                yield '    --mount=type=bind,source=compile_bytecode.py,target=/build/compile_bytecode.py \\\n    '
                yield str(environment.finalize((undefined(name='uv') if l_0_uv is missing else l_0_uv) if environment.getattr(l_1_step, 'is_locked') else undefined(name='uv_for_user') if l_1_uv_for_user is missing else l_1_uv_for_user))
                yield ' \\\n      '
                yield str(environment.finalize(environment.getattr(l_1_step, 'options')))
                if environment.getattr(l_1_step, 'file'):
                    pass
                    yield ' -r /build/'
                    yield str(environment.finalize(environment.getattr(l_1_step, 'file')))
                if environment.getattr(l_1_step, 'has_wheels'):
                    pass
                    yield ' /wheels/*.whl'
                yield ' && \\\n    python /build/compile_bytecode.py\n'
            l_1_step = l_1_uv_for_user = missing
            if undefined(name='user_steps') if l_0_user_steps is missing else l_0_user_steps:
                pass
                yield 'RUN --mount=type=bind,source=verify.py,target=/build/verify.py \\\n    --mount=type=bind,source=expect.json,target=/build/expect.json \\\n    python /build/verify.py --packages --lock /build/expect.json'
                yield str(environment.finalize(undefined(name='imports') if l_0_imports is missing else l_0_imports))
                yield '\n'
    if not (undefined(name='python') if l_0_python is missing else l_0_python):
        pass
        yield 'RUN test -d /usr/local/cuda-'
        yield str(environment.finalize(undefined(name='cuda') if l_0_cuda is missing else l_0_cuda))
        yield '\n'
    if undefined(name='has_after_hook') if l_0_has_after_hook is missing else l_0_has_after_hook:
        pass
        if (undefined(name='frontend') if l_0_frontend is missing else l_0_frontend) == 'classic':
            pass
            yield 'COPY hooks/after-packages.sh /build/hooks/\nRUN sh -eu /build/hooks/after-packages.sh\n'
        else:
            pass
            yield 'RUN --mount=type=bind,source=hooks/after-packages.sh,target=/build/hooks/after-packages.sh \\\n    sh -eu /build/hooks/after-packages.sh\n'
    if undefined(name='init') if l_0_init is missing else l_0_init:
        pass
        yield 'COPY '
        yield str(environment.finalize(undefined(name='link') if l_0_link is missing else l_0_link))
        yield '--from=tools /opt/tools/bin/'
        yield str(environment.finalize(undefined(name='init') if l_0_init is missing else l_0_init))
        yield ' '
        if undefined(name='is_dev') if l_0_is_dev is missing else l_0_is_dev:
            pass
            yield '/opt/tools/bin/uv '
        yield '/usr/local/bin/\n'
    yield 'COPY '
    yield str(environment.finalize(undefined(name='link') if l_0_link is missing else l_0_link))
    yield 'entrypoint.sh /usr/local/bin/provision-entrypoint\nCOPY '
    yield str(environment.finalize(undefined(name='link') if l_0_link is missing else l_0_link))
    if undefined(name='python') if l_0_python is missing else l_0_python:
        pass
        yield 'verify.py constraints.txt '
    yield 'provision.lock /opt/provision/\n'
    if undefined(name='is_dev') if l_0_is_dev is missing else l_0_is_dev:
        pass
        yield '# Who works inside adds and replaces files; those of the layers below stay what they are.\nRUN find /opt/venv -type d -exec chown '
        yield str(environment.finalize(undefined(name='uid') if l_0_uid is missing else l_0_uid))
        yield ':'
        yield str(environment.finalize(undefined(name='uid') if l_0_uid is missing else l_0_uid))
        yield ' {} +\n'
    if undefined(name='driver_minimum') if l_0_driver_minimum is missing else l_0_driver_minimum:
        pass
        yield 'ENV PROVISION_DRIVER_MIN='
        yield str(environment.finalize(undefined(name='driver_minimum') if l_0_driver_minimum is missing else l_0_driver_minimum))
        yield ' \\\n    NVIDIA_VISIBLE_DEVICES=all \\\n    NVIDIA_DRIVER_CAPABILITIES=compute,utility \\\n    NVIDIA_REQUIRE_DRIVER="driver>='
        yield str(environment.finalize(undefined(name='driver_minimum') if l_0_driver_minimum is missing else l_0_driver_minimum))
        yield '"\n'
    if undefined(name='python') if l_0_python is missing else l_0_python:
        pass
        yield 'ENV PIP_CONSTRAINT=/opt/provision/constraints.txt \\\n    UV_CONSTRAINT=/opt/provision/constraints.txt\n'
    for l_1_label in undefined(name='labels') if l_0_labels is missing else l_0_labels:
        _loop_vars = {}
        pass
        yield 'LABEL '
        yield str(environment.finalize(l_1_label))
        yield '\n'
    l_1_label = missing
    for l_1_port in undefined(name='ports') if l_0_ports is missing else l_0_ports:
        _loop_vars = {}
        pass
        yield 'EXPOSE '
        yield str(environment.finalize(l_1_port))
        yield '\n'
    l_1_port = missing
    yield 'WORKDIR /workspace\n'
    for l_1_place, l_1_target in undefined(name='copies') if l_0_copies is missing else l_0_copies:
        _loop_vars = {}
        pass
        yield 'COPY --chown='
        yield str(environment.finalize(undefined(name='uid') if l_0_uid is missing else l_0_uid))
        yield ':'
        yield str(environment.finalize(undefined(name='uid') if l_0_uid is missing else l_0_uid))
        yield ' '
        yield str(environment.finalize(l_1_place))
        yield ' '
        yield str(environment.finalize(l_1_target))
        yield '\n'
    l_1_place = l_1_target = missing
    yield 'USER '
    yield str(environment.finalize(undefined(name='uid') if l_0_uid is missing else l_0_uid))
    yield ':'
    yield str(environment.finalize(undefined(name='uid') if l_0_uid is missing else l_0_uid))
    yield '\nENTRYPOINT ["sh", "/usr/local/bin/provision-entrypoint"]\nCMD '
    yield str(environment.finalize(undefined(name='command_json') if l_0_command_json is missing else l_0_command_json))
    yield '\n'
