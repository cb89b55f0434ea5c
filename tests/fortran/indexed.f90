!> Writes records with indexes: indexed DATASET writes two epochs, clustered by energy.
program indexed
  use, intrinsic :: iso_c_binding
#ifdef WITH_MPI
  use mpi
  use turbidite_mpi
#endif
  use turbidite
  implicit none
  integer, parameter :: rows = 40000
  character(len=24), parameter :: indexes(3) = [character(len=24) :: 'hash:id,with=energy', 'cell', 'bitmap:cell,energy']
  type(turbidite_dataset) :: dataset
  type(turbidite_column) :: schema(3)
  real(c_float), target :: energy(rows)
  integer(c_int64_t), target :: id(rows)
  integer(c_int32_t), target :: cell(rows)
  character(len=1024) :: message, path
  integer(c_int32_t) :: status
  integer(c_int64_t) :: epoch
  integer :: row, rank, place
  type(c_ptr) :: transports(4)
#ifdef WITH_MPI
  integer :: error
#endif

  rank = 0
  transports = c_null_ptr
#ifdef WITH_MPI
  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  do place = 1, 3
    call turbidite_mpi_open(MPI_COMM_WORLD, transports(place), status, message)
    call check()
  end do
#endif
  call get_command_argument(1, path)
  schema = [turbidite_column('energy', turbidite_f32), turbidite_column('id', turbidite_i64), &
            turbidite_column('cell', turbidite_i32)]
  call turbidite_open_indexed(dataset, path, schema, 'energy', indexes, status, message, transports=transports(1:3))
  if (status /= turbidite_usage .or. index(message, 'one for each index') == 0) error stop 'a transport is missing'
#ifdef WITH_MPI
  call turbidite_open_indexed(dataset, path, schema, 'energy', indexes, status, message, transports=transports)
#else
  call turbidite_open_indexed(dataset, path, schema, 'energy', ['nothing'], status, message)
  if (status /= turbidite_usage .or. index(message, "'nothing'") == 0) error stop 'an index of a column that there is not'
  call turbidite_open_indexed(dataset, path, schema, 'energy', indexes, status, message)
#endif
  call check()
  do epoch = 1, 2
    do row = 1, rows
      place = rank*rows + row
      energy(row) = real(mod(place*7919_c_int64_t + epoch, 65521_c_int64_t))
      id(row) = place
      cell(row) = mod(place, 100)
    end do
    call turbidite_begin_epoch(dataset, epoch, status, message)
    call check()
    call turbidite_append(dataset, [turbidite_values(energy), turbidite_values(id), turbidite_values(cell)], status, message)
    call check()
    call turbidite_end_epoch(dataset, status, message)
    call check()
  end do
  call turbidite_close(dataset, status, message)
  call check()
#ifdef WITH_MPI
  do place = 1, 3
    call turbidite_mpi_close(transports(place), status, message)
    call check()
  end do
  call MPI_Finalize(error)
#endif

contains

  subroutine check()
    if (status == turbidite_ok) return
    print '(a)', trim(message)
    error stop 1
  end subroutine

end program
