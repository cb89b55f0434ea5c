!> Errors have a status and a message; layouts that only Fortran has are accepted in place.
program refusals
  use, intrinsic :: iso_c_binding
  use turbidite
  implicit none
  type(turbidite_dataset) :: dataset
  type(turbidite_options) :: options
  type(turbidite_epoch_metrics) :: metrics
  type(turbidite_column) :: schema(2), wrong(2)
  real(c_float), target :: energy(20), none(0)
  real(c_double), target :: double(10)
  integer(c_int32_t), target :: short(10)
  integer(c_int64_t), target :: id(10), no_ids(0)
  character(len=1024) :: message, path
  character(kind=c_char, len=5), target :: period = '128,'//c_null_char
  character(kind=c_char, len=9), target :: level_weight
  integer(c_int32_t) :: status
  integer :: i

  call get_command_argument(1, path)
  schema = [turbidite_column('energy', turbidite_f32, 'J'), turbidite_column('id', turbidite_i64)]
  wrong = schema
  wrong(2)%data_type = 99
  call turbidite_open(dataset, path, wrong, 'energy', status, message)
  call expect(turbidite_usage, "99 of column 'id' is not one of")
  call turbidite_begin_epoch(dataset, 1_c_int64_t, status, message)
  call expect(turbidite_usage, 'NULL')
  call turbidite_open(dataset, path, schema, 'energy', status, message)
  call expect(turbidite_ok, '')
  call turbidite_begin_epoch(dataset, 1_c_int64_t, status, message)
  call expect(turbidite_ok, '')
  energy = [(real(i), i = 1, 20)]
  id = [(int(i, c_int64_t), i = 1, 10)]
  double = energy(1:10)
  short = int(id, c_int32_t)
  call turbidite_append(dataset, [turbidite_values(energy), turbidite_values(id)], status, message)
  call expect(turbidite_usage, "column 'id' has 10 values, but column 'energy' has 20")
  call turbidite_append(dataset, [turbidite_values(id)], status, message)
  call expect(turbidite_usage, 'schema has 2')
  ! Backwards: a negative stride is refused, not read.
  call turbidite_append(dataset, [turbidite_values(energy(10:1:-1)), turbidite_values(id)], status, message)
  call expect(turbidite_usage, "column 'energy': the array lies backwards; copy it")
  call turbidite_append(dataset, [turbidite_values(double), turbidite_values(id)], status, message)
  call expect(turbidite_usage, "epoch 1, rank 0: column 'energy': the values are f64, but the column is f32")
  call turbidite_append(dataset, [turbidite_values(energy(2::2)), turbidite_values(short)], status, message)
  call expect(turbidite_usage, "column 'id': the values are i32, but the column is i64")
  ! The records that were refused belong to the epoch, which fails.
  call turbidite_end_epoch(dataset, status, message)
  call expect(turbidite_failed, 'epoch 1 failed on rank 0')
  call turbidite_begin_epoch(dataset, 1_c_int64_t, status, message)
  call expect(turbidite_ok, '')
  call turbidite_append(dataset, [turbidite_values(none), turbidite_values(no_ids)], status, message)
  call expect(turbidite_ok, '')
  call turbidite_append(dataset, [turbidite_values(energy(2::2)), turbidite_values(id)], status, message)
  call expect(turbidite_ok, '')
  call turbidite_append(dataset, [turbidite_values(energy(3:3)), turbidite_values(id(4:4))], status, message)
  call expect(turbidite_ok, '')
  ! One energy for all records.
  call turbidite_append(dataset, [turbidite_values(energy(5)), turbidite_values(id)], status, message)
  call expect(turbidite_ok, '')
  call turbidite_renegotiate(dataset, status, message)
  call expect(turbidite_ok, '')
  call turbidite_progress(dataset, status, message)
  call expect(turbidite_ok, '')
  call turbidite_epoch_attribute(dataset, 'time', 1.5d0, 'fs', status, message)
  call expect(turbidite_ok, '')
  call turbidite_epoch_attribute(dataset, ' ', 1.5d0, 'fs', status, message)
  call expect(turbidite_usage, "attribute: ''")
  call turbidite_end_epoch_start(dataset, status, message)
  call expect(turbidite_ok, '')
  call turbidite_end_epoch_wait(dataset, status, message, metrics)
  call expect(turbidite_ok, '')
  if (metrics%rows /= 21 .or. metrics%ranks /= 1 .or. metrics%wall_s <= 0) error stop 'metrics'
  call turbidite_begin_epoch(dataset, 1_c_int64_t, status, message)
  call expect(turbidite_failed, 'epoch 1 already exists')
  call turbidite_truncate_after(dataset, 0_c_int64_t, status, message)
  call expect(turbidite_ok, '')
  call turbidite_begin_epoch(dataset, 1_c_int64_t, status, message)
  call expect(turbidite_ok, '')
  call turbidite_end_epoch(dataset, status, message)
  call expect(turbidite_ok, '')
  call turbidite_close(dataset, status, message)
  call expect(turbidite_ok, '')
  call turbidite_options_init(options)
  options%if_exists = turbidite_if_exists_skip
  call turbidite_open(dataset, path, schema, 'energy', status, message, options)
  call expect(turbidite_ok, '')
  call turbidite_begin_epoch(dataset, 1_c_int64_t, status, message)
  call expect(turbidite_skipped, '')
  call turbidite_close(dataset, status)
  options%period = c_loc(period)
  call turbidite_open(dataset, path, schema, 'energy', status, message, options)
  call expect(turbidite_usage, 'only a key by space has periods')
  call turbidite_open(dataset, trim(path)//'-periodic', schema, 'space:energy,id', status, message, options)
  call expect(turbidite_ok, '')
  call turbidite_close(dataset, status, message)
  options%period = c_null_ptr
  call turbidite_open(dataset, trim(path)//'-periodic', schema, 'space:energy,id', status, message, options)
  call expect(turbidite_ok, '')
  call turbidite_close(dataset, status, message)
  call expect(turbidite_ok, '')
  ! Levels of detail in proportion to a column.
  call turbidite_options_init(options)
  options%levels = 1
  call open_weighted('ux')
  call expect(turbidite_usage, 'not one of the columns')
  call open_weighted('energy')
  call expect(turbidite_ok, '')
  call turbidite_close(dataset, status)
  call open_weighted('id')
  call expect(turbidite_failed, "in proportion to 'energy'")
  call write_unsigned()
  print '(a)', 'ok'

contains

  !> Integers of the same size fit unsigned columns, characters those of bytes.
  subroutine write_unsigned()
    type(turbidite_column) :: columns(4)
    integer(c_int8_t), target :: species(10)
    integer(c_int16_t), target :: cell(10)
    character(len=3), target :: name(10)

    species = -1
    cell = [(int(i, c_int16_t), i = 1, 10)]
    name = 'abc'
    columns = [turbidite_column('id', turbidite_u64), turbidite_column('species', turbidite_u8), &
               turbidite_column('cell', turbidite_u16), turbidite_column('name', turbidite_bytes, width=3)]
    call turbidite_open(dataset, trim(path)//'-unsigned', columns, 'hash:id', status, message)
    call expect(turbidite_ok, '')
    call turbidite_begin_epoch(dataset, 1_c_int64_t, status, message)
    call expect(turbidite_ok, '')
    call turbidite_append(dataset, [turbidite_values(id), turbidite_values(species), turbidite_values(cell), &
        turbidite_values(name)], status, message)
    call expect(turbidite_ok, '')
    call turbidite_append(dataset, [turbidite_values(id), turbidite_values(species(1)), turbidite_values(cell(2)), &
        turbidite_values('xyz')], status, message)
    call expect(turbidite_ok, '')
    call turbidite_end_epoch(dataset, status, message)
    call expect(turbidite_ok, '')
    call turbidite_begin_epoch(dataset, 2_c_int64_t, status, message)
    call expect(turbidite_ok, '')
    call turbidite_append(dataset, [turbidite_values(id), turbidite_values(cell), turbidite_values(cell), &
        turbidite_values(name(:)(1:2))], status, message)
    call expect(turbidite_usage, "column 'species': the values are i16, but the column is u8")
    call turbidite_print_errors(0_c_int32_t)
    call turbidite_end_epoch(dataset, status, message)
    call expect(turbidite_failed, 'epoch 2 failed')
    call turbidite_close(dataset, status, message)
    call expect(turbidite_ok, '')
  end subroutine

  subroutine open_weighted(weight)
    character(len=*), intent(in) :: weight

    level_weight = weight//c_null_char
    options%level_weight = c_loc(level_weight)
    call turbidite_open(dataset, trim(path)//'-weighted', schema, 'space:energy,id', status, message, options)
  end subroutine

  subroutine expect(expected, words)
    integer(c_int32_t), intent(in) :: expected
    character(len=*), intent(in) :: words
    if (status == expected .and. index(message, words) > 0) return
    print '(a,i0,a,i0,3a)', 'status ', status, ' where ', expected, ' is right: "', trim(message), '"'
    error stop 1
  end subroutine

end program
