!> What goes wrong is told by a status and in words; layouts that Fortran has and C has not are taken as they are.
program refusals
  use, intrinsic :: iso_c_binding
  use turbidite
  implicit none
  type(turbidite_dataset) :: dataset
  type(turbidite_options) :: options
  type(turbidite_figures) :: figures
  type(turbidite_column) :: schema(2), wrong(2)
  real(c_float), target :: energy(20), none(0)
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
  call expect(turbidite_usage, '99 is not one of')
  call turbidite_begin_epoch(dataset, 1_c_int64_t, status, message)
  call expect(turbidite_usage, 'NULL')
  call turbidite_open(dataset, path, schema, 'energy', status, message)
  call expect(turbidite_ok, '')
  call turbidite_begin_epoch(dataset, 1_c_int64_t, status, message)
  call expect(turbidite_ok, '')
  energy = [(real(i), i = 1, 20)]
  id = [(int(i, c_int64_t), i = 1, 10)]
  call turbidite_append(dataset, [turbidite_values(energy), turbidite_values(id)], status, message)
  call expect(turbidite_usage, 'different lengths')
  call turbidite_append(dataset, [turbidite_values(id)], status, message)
  call expect(turbidite_usage, 'schema has 2')
  call turbidite_append(dataset, [turbidite_values(none), turbidite_values(no_ids)], status, message)
  call expect(turbidite_ok, '')
  call turbidite_append(dataset, [turbidite_values(energy(2::2)), turbidite_values(id)], status, message)
  call expect(turbidite_ok, '')
  call turbidite_append(dataset, [turbidite_values(energy(3:3)), turbidite_values(id(4:4))], status, message)
  call expect(turbidite_ok, '')
  ! Backwards: a negative stride is refused, not read.
  call turbidite_append(dataset, [turbidite_values(energy(10:1:-1)), turbidite_values(id)], status, message)
  call expect(turbidite_usage, 'backwards')
  call turbidite_renegotiate(dataset, status, message)
  call expect(turbidite_ok, '')
  call turbidite_progress(dataset, status, message)
  call expect(turbidite_ok, '')
  call turbidite_end_epoch_start(dataset, status, message)
  call expect(turbidite_ok, '')
  call turbidite_end_epoch_wait(dataset, status, message, figures)
  call expect(turbidite_ok, '')
  if (figures%rows /= 11 .or. figures%ranks /= 1 .or. figures%wall_s <= 0) error stop 'figures'
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
  print '(a)', 'ok'

contains

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
