# find_package(Turbidite [COMPONENTS mpi]): the targets Turbidite::turbidite and, for MPI programs, Turbidite::mpi.
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
set(Turbidite_mpi_FOUND FALSE)
if(TARGET Turbidite::mpi)
  set(Turbidite_mpi_FOUND TRUE)
endif()
foreach(_turbidite_component IN LISTS Turbidite_FIND_COMPONENTS)
  if(Turbidite_FIND_REQUIRED_${_turbidite_component} AND NOT Turbidite_${_turbidite_component}_FOUND)
    set(Turbidite_FOUND FALSE)
    if(_turbidite_component STREQUAL "mpi")
      set(Turbidite_NOT_FOUND_MESSAGE "${_turbidite_prefix}/lib has no libturbidite_mpi.so: install with MPICC=mpicc")
    else()
      set(Turbidite_NOT_FOUND_MESSAGE "Turbidite has no component '${_turbidite_component}', only mpi")
    endif()
  endif()
endforeach()
unset(_turbidite_component)
unset(_turbidite_prefix)
