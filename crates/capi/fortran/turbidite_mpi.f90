!> Fortran interface of the MPI transport for turbidite_open. turbidite_mpi.h documents the calls.
!>
!> Compile this file and turbidite.f90 with your program, and link libturbidite_mpi before libturbidite. A communicator
!> is passed as an integer. For a type(MPI_Comm) of mpi_f08, pass comm%MPI_VAL.
module turbidite_mpi
  use, intrinsic :: iso_c_binding
  use turbidite, only: turbidite_ok, turbidite_text
  implicit none
  private
  public :: turbidite_mpi_open, turbidite_mpi_close

  interface
    function c_open(communicator, transport) bind(c, name='turbidite_mpi_open_fortran')
      import :: c_int, c_ptr
      integer(c_int), value :: communicator
      type(c_ptr), intent(out) :: transport
      integer(c_int) :: c_open
    end function

    function c_close(transport) bind(c, name='turbidite_mpi_close')
      import :: c_int, c_ptr
      type(c_ptr), value :: transport
      integer(c_int) :: c_close
    end function

    function c_last_error() bind(c, name='turbidite_mpi_last_error')
      import :: c_ptr
      type(c_ptr) :: c_last_error
    end function
  end interface

contains

  !> Creates a transport between all ranks of a communicator. Collective.
  subroutine turbidite_mpi_open(communicator, transport, status, message)
    integer, intent(in) :: communicator
    type(c_ptr), intent(out) :: transport
    integer(c_int32_t), intent(out) :: status
    character(len=*), intent(out), optional :: message
    status = c_open(int(communicator, c_int), transport)
    call tell(status, message)
  end subroutine

  !> Frees the transport. Collective. Call it after closing the datasets and before MPI_Finalize.
  subroutine turbidite_mpi_close(transport, status, message)
    type(c_ptr), intent(inout) :: transport
    integer(c_int32_t), intent(out) :: status
    character(len=*), intent(out), optional :: message
    status = c_close(transport)
    transport = c_null_ptr
    call tell(status, message)
  end subroutine

  subroutine tell(status, message)
    integer(c_int32_t), intent(in) :: status
    character(len=*), intent(out), optional :: message
    if (.not. present(message)) return
    message = ''
    if (status /= turbidite_ok) message = turbidite_text(c_last_error())
  end subroutine

end module
