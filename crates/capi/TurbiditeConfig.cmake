# find_package(Turbidite): the targets Turbidite::turbidite and, for MPI programs, Turbidite::mpi.
get_filename_component(_turbidite_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET Turbidite::turbidite)
  add_library(Turbidite::turbidite SHARED IMPORTED)
  set_target_properties(Turbidite::turbidite PROPERTIES
    IMPORTED_LOCATION "${_turbidite_prefix}/lib/libturbidite.so"
    IMPORTED_SONAME "libturbidite.so.0"
    INTERFACE_INCLUDE_DIRECTORIES "${_turbidite_prefix}/include")
endif()
if(NOT TARGET Turbidite::mpi AND EXISTS "${_turbidite_prefix}/lib/libturbidite_mpi.so")
  add_library(Turbidite::mpi SHARED IMPORTED)
  set_target_properties(Turbidite::mpi PROPERTIES
    IMPORTED_LOCATION "${_turbidite_prefix}/lib/libturbidite_mpi.so"
    INTERFACE_LINK_LIBRARIES Turbidite::turbidite)
endif()
set(Turbidite_FOUND TRUE)
unset(_turbidite_prefix)
