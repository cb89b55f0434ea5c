!> Writes two timesteps of a small model through Turbidite. With -DWITH_MPI, on all ranks of MPI_COMM_WORLD; with
!> -DWITH_MPI_F08 besides, by MPI's newer module.
!>
!>     write_epochs DATASET
program write_epochs
  use, intrinsic :: iso_c_binding
#ifdef WITH_MPI_F08
  use mpi_f08
  use turbidite_mpi
#define WORLD MPI_COMM_WORLD%MPI_VAL
#elif defined(WITH_MPI)
  use mpi
  use turbidite_mpi
#define WORLD MPI_COMM_WORLD
#endif
  use turbidite
  implicit none

  integer, parameter :: particles = 50000
  ! One row per property, as many Fortran codes have it: a column of the dataset is a section with a stride.
  real(c_float), target :: properties(3, particles)
  real(c_double), target :: momentum(particles)
  integer(c_int64_t), target :: id(particles)
  integer(c_int32_t), target :: cell(particles)
  type(turbidite_column) :: schema(5)
  type(turbidite_dataset) :: dataset
  type(turbidite_epoch_metrics) :: metrics
  type(turbidite_options) :: options
  type(c_ptr) :: transport
  character(len=1024) :: message, path
  integer(c_int32_t) :: status
  integer(c_int64_t) :: epoch
  integer :: rank
#ifdef WITH_MPI
  integer :: error
#endif

  call get_command_argument(1, path)
  rank = 0
  transport = c_null_ptr
#ifdef WITH_MPI
  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call turbidite_mpi_open(WORLD, transport, status, message)
  call check(status)
#endif
  schema(1) = turbidite_column('energy', turbidite_f32, 'mc^2')
  schema(2) = turbidite_column('x', turbidite_f32, 'cells')
  schema(3) = turbidite_column('momentum', turbidite_f64, 'mc')
  schema(4) = turbidite_column('id', turbidite_i64)
  schema(5) = turbidite_column('cell', turbidite_i32)
  call turbidite_options_init(options)
  options%if_exists = turbidite_if_exists_replace
  call turbidite_open(dataset, path, schema, 'energy', status, message, options, transport)
  call check(status)
  do epoch = 1, 2
    call advance(epoch)
    call turbidite_begin_epoch(dataset, epoch, status, message)
    call check(status)
    call turbidite_append(dataset, [turbidite_values(properties(3, :)), turbidite_values(properties(1, :)), &
        turbidite_values(momentum), turbidite_values(id), turbidite_values(cell)], status, message)
    call check(status)
    call turbidite_end_epoch(dataset, status, message, metrics)
    call check(status)
    if (rank == 0) then
      print '(3(a,i0),a)', 'epoch ', epoch, ': ', metrics%rows, ' rows of ', metrics%ranks, ' ranks'
    end if
  end do
  call turbidite_close(dataset, status, message)
  call check(status)
#ifdef WITH_MPI
  call turbidite_mpi_close(transport, status, message)
  call check(status)
  call MPI_Finalize(error)
#endif

contains

  !> The model: numbers that can be checked. Energies are scattered, and all of them change from step to step.
  subroutine advance(step)
    integer(c_int64_t), intent(in) :: step
    integer(c_int64_t) :: scattered
    integer :: i
    do i = 1, particles
      id(i) = int(rank, c_int64_t)*particles + i
      cell(i) = -int(mod(id(i), 1000_c_int64_t), c_int32_t)
      properties(1, i) = real(i, c_float)
      properties(2, i) = -1
      scattered = mod(int(i, c_int64_t)*7919 + step, int(particles, c_int64_t))
      properties(3, i) = real(scattered*step, c_float)
      momentum(i) = real(id(i), c_double)/3
    end do
  end subroutine

  subroutine check(answered)
    integer(c_int32_t), intent(in) :: answered
    if (answered == turbidite_ok) return
    print '(2a)', 'write_epochs: ', trim(message)
    error stop 1
  end subroutine

end program
