!> Writes records whose ids are unique for each cpu only: keys DATASET writes two epochs, clustered by the hash of both.
program keys
  use, intrinsic :: iso_c_binding
  use turbidite
  implicit none
  integer, parameter :: rows = 40000, cpus = 7
  type(turbidite_dataset) :: dataset
  type(turbidite_column) :: schema(3)
  integer(c_int32_t), target :: cpu(rows)
  integer(c_int64_t), target :: id(rows)
  real(c_float), target :: value(rows)
  character(len=1024) :: message, path
  integer(c_int32_t) :: status
  integer(c_int64_t) :: epoch
  integer :: row

  call get_command_argument(1, path)
  schema = [turbidite_column('value', turbidite_f32), turbidite_column('cpu', turbidite_i32), &
            turbidite_column('id', turbidite_i64)]
  call turbidite_open(dataset, path, schema, 'hash:cpu,value', status, message)
  if (status /= turbidite_usage .or. index(message, "'value', which is f32") == 0) error stop 'a float in a key'
  call turbidite_open(dataset, path, schema, 'hash:cpu,id', status, message)
  call check()
  do epoch = 1, 2
    do row = 1, rows
      cpu(row) = mod(row, cpus) - 3
      id(row) = mod(row*48271_c_int64_t, 65521_c_int64_t) - 30000
      value(row) = real(row)*real(epoch)
    end do
    call turbidite_begin_epoch(dataset, epoch, status, message)
    call check()
    call turbidite_append(dataset, [turbidite_values(value), turbidite_values(cpu), turbidite_values(id)], status, message)
    call check()
    call turbidite_end_epoch(dataset, status, message)
    call check()
  end do
  call turbidite_close(dataset, status, message)
  call check()

contains

  subroutine check()
    if (status == turbidite_ok) return
    print '(a)', trim(message)
    error stop 1
  end subroutine

end program
