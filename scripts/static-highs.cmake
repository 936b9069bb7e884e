# HiGHS makes a shared library of what it uses seldom, and a static program cannot load one.
set(BUILD_SHARED_EXTRAS_LIB OFF CACHE BOOL "" FORCE)
