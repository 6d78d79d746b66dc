// SPDX-License-Identifier: BSD-3-Clause
// For programs in wheels (ALTORCH_MANYLINUX): how a program starts on glibc 2.27. Since 2.34 glibc
// runs the program's constructors itself. Before, the program passes glibc a function that does;
// newer versions still call it.
#if defined(__x86_64__)
#define OLDEST "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define OLDEST "GLIBC_2.17"
#endif

extern "C" {

using Main = int (*)(int, char**, char**);
using Function = void (*)();

int old_libc_start_main(Main main, int argc, char** argv, Main init, Function fini, Function rtld_fini,
                        void* stack_end);
__asm__(".symver old_libc_start_main, __libc_start_main@" OLDEST);

extern const Main __init_array_start[] __attribute__((visibility("hidden")));
extern const Main __init_array_end[] __attribute__((visibility("hidden")));

static int run_constructors(int argc, char** argv, char** environment) {
  for (const Main* each = __init_array_start; each != __init_array_end; ++each) (*each)(argc, argv, environment);
  return 0;
}

__attribute__((visibility("hidden"))) int __libc_start_main(Main main, int argc, char** argv, Function, Function,
                                                            Function rtld_fini, void* stack_end) {
  return old_libc_start_main(main, argc, argv, &run_constructors, nullptr, rtld_fini, stack_end);
}

}  // extern "C"
