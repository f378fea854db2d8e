# A checkout that measures on a machine without a network, which has torch, a C compiler and Python.
#
#   sh packaging/offline.sh bring FOLDER [PYTHON_VERSION]   # behind `make packs`: wheels and packs into FOLDER
#   . packaging/offline.sh use FOLDER                       # there, in the checkout: builds once, sets paths
#
# The wheels are those that a machine with torch for CUDA, transformers and cuda-core lacks.

OFFLINE_WHEELS="platformdirs pyelftools tree-sitter tree-sitter-cuda typer rich pydantic pydantic_core \
annotated-types typing-inspection typing_extensions annotated-doc nvidia-cuda-nvdisasm pytest-xdist execnet"

bring() {
  folder=$1 version=${2:-3.12}
  mkdir -p "$folder/wheels"
  pins=$(.venv/bin/python -c 'import sys; from importlib.metadata import version
print(*(f"{name}=={version(name)}" for name in sys.argv[1:]))' $OFFLINE_WHEELS) || return
  platforms=$(printf -- ' --platform %s_x86_64' manylinux_2_28 manylinux_2_17 manylinux2014 manylinux1)
  .venv/bin/python -m pip download --quiet --no-deps --only-binary=:all: --implementation cp \
    --python-version "$version" $platforms --dest "$folder/wheels" $pins || return
  cp hgemm_packs.egg-info/entry_points.txt "$folder/" || return
  tar -C packs -cf - . | xz -T0 -3 > "$folder/packs.tar.xz"
}

use() {
  folder=$1 site=${OFFLINE_SITE:-/tmp/offline}
  ln -sfn ../generator hgemm_packs/generator
  ln -sfn ../csrc/kernels generator/kernels
  ln -sfn ../manifests generator/manifests
  if [ ! -f "$site/.ready" ]; then
    python3 -m pip install --quiet --no-index --no-deps --no-compile --upgrade --target "$site" \
      "$folder"/wheels/*.whl || return
    info="$site/hgemm_packs-0.0.0.dist-info"  # what the commands and their version come from
    mkdir -p "$info"
    printf 'Metadata-Version: 2.1\nName: hgemm-packs\nVersion: 0.1.0\n' > "$info/METADATA"
    cp "$folder/entry_points.txt" "$info/"
    python3 setup.py --quiet build_ext --inplace > "$site/build.log" 2>&1 || { tail "$site/build.log" >&2; return 1; }
    rm -rf packs && mkdir packs && xz -dc -T0 "$folder/packs.tar.xz" | tar -C packs -xf - || return
    touch "$site/.ready"
  fi
  export PYTHONPATH="$PWD:$site" HGEMM_PACKS_PATH="$PWD/packs/sm_90a" PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1
}

verb=$1
shift
case $verb in
  bring | use) "$verb" "$@" ;;
  *) echo "usage: offline.sh bring|use FOLDER" >&2 ;;
esac
