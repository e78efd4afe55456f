# Written by tools/compile_templates.py with jinja2's compiler from images/provision.def.j2. Do not edit.
# ruff: noqa
# mypy: ignore-errors
# fmt: off
from provision.generate.engine import TemplateRuntimeError, environment, internalcode, missing

SOURCE_DIGEST = "85fabeed69411a50786546280c27482a630654622abb01770a278a4e524060b3"

def root(context, missing=missing, environment=environment):
    resolve = context.resolve_or_missing
    undefined = environment.undefined
    concat = environment.concat
    if 0:
        yield None
    l_0_cuda_base = resolve('cuda_base')
    l_0_cuda_from = resolve('cuda_from')
    l_0_lock_digest = resolve('lock_digest')
    l_0_name = resolve('name')
    l_0_facts_date = resolve('facts_date')
    l_0_cuda = resolve('cuda')
    l_0_triplet = resolve('triplet')
    l_0_base_from = resolve('base_from')
    l_0_files = resolve('files')
    l_0_copy_commands = resolve('copy_commands')
    l_0_apt = resolve('apt')
    l_0_apt_setup = resolve('apt_setup')
    l_0_has_before_hook = resolve('has_before_hook')
    l_0_python = resolve('python')
    l_0_pip_environment = resolve('pip_environment')
    l_0_pip_options = resolve('pip_options')
    l_0_library_path = resolve('library_path')
    l_0_steps = resolve('steps')
    l_0_early_imports = resolve('early_imports')
    l_0_builds = resolve('builds')
    l_0_user_steps = resolve('user_steps')
    l_0_imports = resolve('imports')
    l_0_has_after_hook = resolve('has_after_hook')
    l_0_is_dev = resolve('is_dev')
    l_0_is_devel = resolve('is_devel')
    l_0_driver_minimum = resolve('driver_minimum')
    l_0_definition_labels = resolve('definition_labels')
    l_0_command_words = resolve('command_words')
    try:
        t_1 = environment.filters['sh']
    except KeyError:

        @internalcode
        def t_1(*unused):
            raise TemplateRuntimeError("No filter named 'sh' found.")
    pass
    if undefined(name='cuda_base') if l_0_cuda_base is missing else l_0_cuda_base:
        pass
        yield 'Bootstrap: docker\nFrom: '
        yield str(environment.finalize(undefined(name='cuda_from') if l_0_cuda_from is missing else l_0_cuda_from))
        yield '\nStage: cuda\n# provision.lock '
        yield str(environment.finalize(undefined(name='lock_digest') if l_0_lock_digest is missing else l_0_lock_digest))
        yield '\n# '
        yield str(environment.finalize(undefined(name='name') if l_0_name is missing else l_0_name))
        yield ': facts of '
        yield str(environment.finalize(undefined(name='facts_date') if l_0_facts_date is missing else l_0_facts_date))
        yield '. Written by `provision image`; edits here count as drift.\n# Build: apptainer build '
        yield str(environment.finalize(undefined(name='name') if l_0_name is missing else l_0_name))
        yield '.sif provision.def\n# Run: apptainer run --nv '
        yield str(environment.finalize(undefined(name='name') if l_0_name is missing else l_0_name))
        yield '.sif\n\n%post\n    set -eu\n    # Only the libraries of this stage reach the image.\n    mkdir -p /layer\n    cp -a --parents -t /layer /usr/local/cuda-'
        yield str(environment.finalize(undefined(name='cuda') if l_0_cuda is missing else l_0_cuda))
        yield '\n    find /etc/alternatives /usr/include /usr/lib/'
        yield str(environment.finalize(undefined(name='triplet') if l_0_triplet is missing else l_0_triplet))
        yield " \\\n      \\( -name 'libcudnn*' -o -name 'cudnn*' -o -name 'libnccl*' -o -name 'nccl*' \\) \\\n      -exec cp -a --parents -t /layer {} +\n    ln -s cuda-"
        yield str(environment.finalize(undefined(name='cuda') if l_0_cuda is missing else l_0_cuda))
        yield ' /layer/usr/local/cuda\n    # Links stay links only inside an archive.\n    tar -C /layer -cf /layer.tar .\n\n'
    yield 'Bootstrap: docker\nFrom: '
    yield str(environment.finalize(undefined(name='base_from') if l_0_base_from is missing else l_0_base_from))
    yield '\nStage: final\n'
    if not (undefined(name='cuda_base') if l_0_cuda_base is missing else l_0_cuda_base):
        pass
        yield '# provision.lock '
        yield str(environment.finalize(undefined(name='lock_digest') if l_0_lock_digest is missing else l_0_lock_digest))
        yield '\n# '
        yield str(environment.finalize(undefined(name='name') if l_0_name is missing else l_0_name))
        yield ': facts of '
        yield str(environment.finalize(undefined(name='facts_date') if l_0_facts_date is missing else l_0_facts_date))
        yield '. Written by `provision image`; edits here count as drift.\n# Build: apptainer build '
        yield str(environment.finalize(undefined(name='name') if l_0_name is missing else l_0_name))
        yield '.sif provision.def\n# Run: apptainer run --nv '
        yield str(environment.finalize(undefined(name='name') if l_0_name is missing else l_0_name))
        yield '.sif\n'
    yield '\n'
    if undefined(name='cuda_base') if l_0_cuda_base is missing else l_0_cuda_base:
        pass
        yield '%files from cuda\n    /layer.tar /build/layer.tar\n\n'
    yield '%files\n'
    for l_1_file in undefined(name='files') if l_0_files is missing else l_0_files:
        _loop_vars = {}
        pass
        yield '    '
        yield str(environment.finalize(l_1_file))
        yield ' /build/'
        yield str(environment.finalize(l_1_file))
        yield '\n'
    l_1_file = missing
    if undefined(name='copy_commands') if l_0_copy_commands is missing else l_0_copy_commands:
        pass
        yield '    code /build/code\n'
    yield '\n%post\n    set -eu\n    mkdir -p /opt/provision /workspace\n'
    if undefined(name='cuda_base') if l_0_cuda_base is missing else l_0_cuda_base:
        pass
        yield "    tar -C / -xf /build/layer.tar\n    printf '/usr/local/cuda-"
        yield str(environment.finalize(undefined(name='cuda') if l_0_cuda is missing else l_0_cuda))
        yield "/lib64\\n' > /etc/ld.so.conf.d/provision-cuda.conf\n    ldconfig\n"
    if undefined(name='apt') if l_0_apt is missing else l_0_apt:
        pass
        yield '    '
        yield str(environment.finalize(undefined(name='apt_setup') if l_0_apt_setup is missing else l_0_apt_setup))
        yield 'apt-get update\n    apt-get install -y --no-install-recommends'
        for l_1_package in undefined(name='apt') if l_0_apt is missing else l_0_apt:
            _loop_vars = {}
            pass
            yield ' '
            yield str(environment.finalize(t_1(l_1_package)))
        l_1_package = missing
        yield '\n    rm -rf /var/lib/apt/lists/* /var/log/apt /var/log/dpkg.log /var/log/alternatives.log'
        if undefined(name='apt_setup') if l_0_apt_setup is missing else l_0_apt_setup:
            pass
            yield ' /tmp/apt'
        yield '\n'
    if undefined(name='has_before_hook') if l_0_has_before_hook is missing else l_0_has_before_hook:
        pass
        yield '    sh -eu /build/hooks/before-packages.sh\n'
    if undefined(name='python') if l_0_python is missing else l_0_python:
        pass
        yield '    python='
        yield str(environment.finalize(undefined(name='python') if l_0_python is missing else l_0_python))
        yield '\n    if ! "$python" -c \'import pip\' 2> /dev/null; then\n      "$python" -m venv /opt/seed\n      python=/opt/seed/bin/python\n    fi\n    '
        yield str(environment.finalize(undefined(name='pip_environment') if l_0_pip_environment is missing else l_0_pip_environment))
        yield '"$python" -m pip install '
        yield str(environment.finalize(undefined(name='pip_options') if l_0_pip_options is missing else l_0_pip_options))
        yield ' \\\n      --no-cache-dir --no-deps --require-hashes --target /opt/tools -r /build/tools.txt\n    '
        yield str(environment.finalize(undefined(name='python') if l_0_python is missing else l_0_python))
        yield ' -m venv --without-pip /opt/venv\n    export PATH="/opt/venv/bin:${PATH}"\n    export VIRTUAL_ENV=/opt/venv\n'
        if undefined(name='library_path') if l_0_library_path is missing else l_0_library_path:
            pass
            yield '    export LD_LIBRARY_PATH='
            yield str(environment.finalize(undefined(name='library_path') if l_0_library_path is missing else l_0_library_path))
            yield '\n'
        for l_1_step in undefined(name='steps') if l_0_steps is missing else l_0_steps:
            l_1_uv = resolve('uv')
            _loop_vars = {}
            pass
            yield '    '
            yield str(environment.finalize(undefined(name='uv') if l_1_uv is missing else l_1_uv))
            yield ' \\\n      '
            yield str(environment.finalize(environment.getattr(l_1_step, 'options')))
            yield ' -r /build/'
            yield str(environment.finalize(environment.getattr(l_1_step, 'file')))
            yield '\n    python /build/compile_bytecode.py\n'
        l_1_step = l_1_uv = missing
        yield '    python /build/verify.py --static --lock /build/expect.json'
        yield str(environment.finalize(undefined(name='early_imports') if l_0_early_imports is missing else l_0_early_imports))
        yield '\n'
        for l_1_build in undefined(name='builds') if l_0_builds is missing else l_0_builds:
            l_1_build_environment = resolve('build_environment')
            _loop_vars = {}
            pass
            yield '    '
            yield str(environment.finalize(undefined(name='pip_environment') if l_0_pip_environment is missing else l_0_pip_environment))
            yield str(environment.finalize(undefined(name='build_environment') if l_1_build_environment is missing else l_1_build_environment))
            yield 'PYTHONPATH=/opt/tools "$python" -m pip wheel '
            yield str(environment.finalize(undefined(name='pip_options') if l_0_pip_options is missing else l_0_pip_options))
            yield ' \\\n      --no-cache-dir --no-deps --wheel-dir /build/wheels -r /build/'
            yield str(environment.finalize(environment.getattr(l_1_build, 'file')))
            yield '\n'
        l_1_build = l_1_build_environment = missing
        for l_1_step in undefined(name='user_steps') if l_0_user_steps is missing else l_0_user_steps:
            l_1_uv = resolve('uv')
            _loop_vars = {}
            pass
            yield '    '
            yield str(environment.finalize(undefined(name='uv') if l_1_uv is missing else l_1_uv))
            yield ' \\\n      '
            yield str(environment.finalize(environment.getattr(l_1_step, 'options')))
            if environment.getattr(l_1_step, 'file'):
                pass
                yield ' -r /build/'
                yield str(environment.finalize(environment.getattr(l_1_step, 'file')))
            if environment.getattr(l_1_step, 'has_wheels'):
                pass
                yield ' /build/wheels/*.whl'
            yield '\n'
        l_1_step = l_1_uv = missing
        if undefined(name='user_steps') if l_0_user_steps is missing else l_0_user_steps:
            pass
            yield '    python /build/compile_bytecode.py\n    python /build/verify.py --packages --lock /build/expect.json'
            yield str(environment.finalize(undefined(name='imports') if l_0_imports is missing else l_0_imports))
            yield '\n'
        yield '    cp /build/verify.py /build/expect.json /build/constraints.txt /opt/provision/\n'
    else:
        pass
        yield '    test -d /usr/local/cuda-'
        yield str(environment.finalize(undefined(name='cuda') if l_0_cuda is missing else l_0_cuda))
        yield '\n'
    if undefined(name='has_after_hook') if l_0_has_after_hook is missing else l_0_has_after_hook:
        pass
        yield '    sh -eu /build/hooks/after-packages.sh\n'
    if undefined(name='is_dev') if l_0_is_dev is missing else l_0_is_dev:
        pass
        yield '    cp /opt/tools/bin/uv /usr/local/bin/\n'
    for l_1_line in undefined(name='copy_commands') if l_0_copy_commands is missing else l_0_copy_commands:
        _loop_vars = {}
        pass
        yield '    '
        yield str(environment.finalize(l_1_line))
        yield '\n'
    l_1_line = missing
    yield '    cp /build/provision.lock /opt/provision/\n    cp /build/entrypoint.sh /usr/local/bin/provision-entrypoint\n    rm -rf /build /opt/tools /opt/seed\n\n%environment\n'
    if undefined(name='python') if l_0_python is missing else l_0_python:
        pass
        yield '    export PATH="/opt/venv/bin:'
        if undefined(name='is_devel') if l_0_is_devel is missing else l_0_is_devel:
            pass
            yield '/usr/local/cuda/bin:'
        yield '${PATH}"\n    export VIRTUAL_ENV=/opt/venv\n    export PYTHONDONTWRITEBYTECODE=1\n    export PYTHONUNBUFFERED=1\n    export PIP_CONSTRAINT=/opt/provision/constraints.txt\n    export UV_CONSTRAINT=/opt/provision/constraints.txt\n'
        if undefined(name='is_devel') if l_0_is_devel is missing else l_0_is_devel:
            pass
            yield '    export CUDA_HOME=/usr/local/cuda\n'
        if undefined(name='library_path') if l_0_library_path is missing else l_0_library_path:
            pass
            yield '    export LD_LIBRARY_PATH="'
            yield str(environment.finalize(undefined(name='library_path') if l_0_library_path is missing else l_0_library_path))
            yield '${LD_LIBRARY_PATH:+:${LD_LIBRARY_PATH}}"\n'
    if undefined(name='driver_minimum') if l_0_driver_minimum is missing else l_0_driver_minimum:
        pass
        yield '    export PROVISION_DRIVER_MIN='
        yield str(environment.finalize(undefined(name='driver_minimum') if l_0_driver_minimum is missing else l_0_driver_minimum))
        yield '\n'
    yield '\n%labels\n'
    for l_1_label in undefined(name='definition_labels') if l_0_definition_labels is missing else l_0_definition_labels:
        _loop_vars = {}
        pass
        yield '    '
        yield str(environment.finalize(l_1_label))
        yield '\n'
    l_1_label = missing
    yield '\n%runscript\n    if [ "$#" -eq 0 ]; then\n      set -- '
    yield str(environment.finalize(undefined(name='command_words') if l_0_command_words is missing else l_0_command_words))
    yield '\n    fi\n    exec sh /usr/local/bin/provision-entrypoint "$@"\n\n%test\n'
    if undefined(name='python') if l_0_python is missing else l_0_python:
        pass
        yield '    python /opt/provision/verify.py --static --lock /opt/provision/expect.json'
        yield str(environment.finalize(undefined(name='imports') if l_0_imports is missing else l_0_imports))
        yield '\n'
    else:
        pass
        yield '    test -d /usr/local/cuda-'
        yield str(environment.finalize(undefined(name='cuda') if l_0_cuda is missing else l_0_cuda))
        yield '\n'
    yield '\n%help\n'
    if undefined(name='driver_minimum') if l_0_driver_minimum is missing else l_0_driver_minimum:
        pass
        yield '    '
        yield str(environment.finalize(undefined(name='name') if l_0_name is missing else l_0_name))
        yield ', driver '
        yield str(environment.finalize(undefined(name='driver_minimum') if l_0_driver_minimum is missing else l_0_driver_minimum))
        yield ' or newer. With a GPU: apptainer run --nv '
        yield str(environment.finalize(undefined(name='name') if l_0_name is missing else l_0_name))
        yield '.sif\n'
    else:
        pass
        yield '    '
        yield str(environment.finalize(undefined(name='name') if l_0_name is missing else l_0_name))
        yield ', without CUDA: apptainer run '
        yield str(environment.finalize(undefined(name='name') if l_0_name is missing else l_0_name))
        yield '.sif\n'
