#!/usr/bin/env bash
# How the libraries beside this file were made: gcc 12 and nvcc 13.0, x86_64. They are kept, since
# a machine that runs the tests need not have nvcc.
#   bash build.sh
set -euo pipefail
cd "$(dirname "$0")"
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
small=(-O1 -s -shared -fPIC -Wl,--build-id=none -Wl,-z,max-page-size=4096 -fno-asynchronous-unwind-tables)

# Libraries to link against: only their sonames and symbols count.
for name in libcudart.so.12 libcudart.so.13 libc10.so; do
  printf 'namespace c10 { void warn(int) {} }\n' | g++ -x c++ "${small[@]}" -Wl,-soname,$name -o "$work/$name" -
done
library() { # OUT SOURCE FLAGS...: a C++ library
  local out=$1 source=$2; shift 2
  printf '%s\n' "$source" | g++ -x c++ "${small[@]}" -o "$out" - -Wl,--no-as-needed "$@"
}
library needs-cuda12.so 'namespace c10 { void warn(int); } void f() { c10::warn(1); }' -x none "$work/libcudart.so.12" "$work/libc10.so"
library needs-cuda13.so 'namespace c10 { void warn(int); } void f() { c10::warn(1); }' -x none "$work/libcudart.so.13" "$work/libc10.so"
library other-torch.so 'namespace c10 { struct SymInt; void gone_since(SymInt const&, int); extern SymInt const& one; } void f() { c10::gone_since(c10::one, 1); }' -x none "$work/libc10.so"
text='#include <string>
namespace c10 { void warn(std::string const&); } void f() { c10::warn(std::string("x")); }'
library new-abi.so "$text" -D_GLIBCXX_USE_CXX11_ABI=1
library old-abi.so "$text" -D_GLIBCXX_USE_CXX11_ABI=0
# pthread_create moved into libc with GLIBC_2.34; std::__throw_bad_array_new_length is GLIBCXX_3.4.29.
library new-glibc.so '#include <pthread.h>
void f(pthread_t* t, void* (*g)(void*)) { pthread_create(t, nullptr, g, nullptr); }'
library new-libstdcxx.so '#include <vector>
namespace std { void __throw_bad_array_new_length(); } void f() { std::__throw_bad_array_new_length(); }'

printf 'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2.0f; }\n' > "$work/twice.cu"
cuda() { # OUT -gencode...: a library with kernels for these GPUs
  local out=$1; shift
  nvcc -shared -Xcompiler -fPIC -cudart=shared -Xlinker -s "$@" "$work/twice.cu" -o "$out"
}
cuda without-sm120.so -gencode arch=compute_90a,code=sm_90a -gencode arch=compute_100,code=sm_100
cuda with-sm120.so -gencode arch=compute_90a,code=sm_90a -gencode arch=compute_120f,code=sm_120f -gencode arch=compute_103a,code=sm_103a
cuda only-ptx.so -gencode arch=compute_75,code=compute_75
