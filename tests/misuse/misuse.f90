!> misuse CASE DATASET: misuse.c in Fortran. Each failed call is printed with its message. With -DWITH_MPI, all ranks
!> take part, and rank 1 makes the mistake.
program misuse
  use, intrinsic :: iso_c_binding
  use turbidite
#ifdef WITH_MPI
  use mpi
  use turbidite_mpi
#endif
  implicit none
  integer, parameter :: count = 1000, half = count / 2, wrong_epoch = 2
  type(turbidite_dataset) :: dataset, other
  type(turbidite_column) :: columns(3)
  real(c_float), target :: energy(count)
  real(c_double), target :: doubles(half)
  integer(c_int32_t), target :: shorts(half)
  integer(c_int64_t), target :: id(count)
  character(kind=c_char, len=6), target :: name(count)
  character(kind=c_char, len=5), target :: narrow_names(half)
  character(len=1024) :: message, path
  character(len=32) :: mistake
  type(c_ptr) :: transport = c_null_ptr
  logical :: makes_it = .true.
  integer(c_int32_t) :: status
  integer :: i

  call get_command_argument(1, mistake)
  call get_command_argument(2, path)
  energy = [(real(i - 1), i = 1, count)]
  id = [(int(i - 1, c_int64_t), i = 1, count)]
  name = 'abcdef'
  doubles = 0
  shorts = 0
  narrow_names = 'abcde'
  call start()
  if (is('silent')) call turbidite_print_errors(0_c_int32_t)
  if (is('unopened')) then
    call forget_to_open()
  else
    call open_dataset(dataset, path)
    if (is('reopened')) call open_dataset(other, path)
    if (all_make('shared')) call open_dataset(other, trim(path)//'-other')
    if (is('before')) call append(1, .false.)
    do i = 1, 3
      call write_epoch(i)
    end do
    if (is('open')) then
      call turbidite_begin_epoch(dataset, 9_c_int64_t, status, message)
      call tell('turbidite_begin_epoch')
    end if
    call close_dataset()
    if (is('closed')) call append(1, .false.)
  end if
  call finish()
  print '(a)', 'done'

contains

  !> Whether this is the mistake, and this rank makes it.
  logical function is(wanted)
    character(len=*), intent(in) :: wanted
    is = makes_it .and. mistake == wanted
  end function

  !> Whether all ranks make this mistake.
  logical function all_make(wanted)
    character(len=*), intent(in) :: wanted
    all_make = mistake == wanted
  end function

  subroutine tell(called)
    character(len=*), intent(in) :: called
    if (status == turbidite_ok .or. status == turbidite_skipped) return
    print '(i0,4a)', status, ' ', called, ': ', trim(message)
  end subroutine

  subroutine open_dataset(opened, at)
    type(turbidite_dataset), intent(out) :: opened
    character(len=*), intent(in) :: at
    type(turbidite_options) :: options
    character(len=6) :: key

    columns = [turbidite_column('energy', turbidite_f32), turbidite_column('id', turbidite_u64), &
               turbidite_column('name', turbidite_bytes, width=6)]
    key = 'energy'
    call turbidite_options_init(options)
    if (all_make('breaks')) options%break_lock = 1
    if (all_make('replaces')) options%if_exists = turbidite_if_exists_replace
    if (all_make('skipped')) options%if_exists = turbidite_if_exists_skip
    if (all_make('full')) options%memtable_bytes = 1048576
    if (is('mode')) options%if_exists = 7
    if (is('options')) options%struct_size = 0
    if (is('levels')) options%levels = 3
    if (is('type')) columns(2)%data_type = 99
    if (is('duplicate')) columns(2)%name = 'energy'
    if (is('nameless')) columns(2)%name = ''
    if (is('schema')) columns(1)%data_type = turbidite_f64
    if (is('key')) key = 'enrgy'
    if (is('pathless')) then
      call turbidite_open(opened, '', columns, key, status, message, options)
    else if (c_associated(transport)) then
      call turbidite_open(opened, at, columns, key, status, message, options, transport)
    else
      call turbidite_open(opened, at, columns, key, status, message, options)
    end if
    call tell('turbidite_open')
  end subroutine

  !> Appends half of the records, in views that the mistake makes wrong.
  subroutine append(first, is_wrong)
    integer, intent(in) :: first
    logical, intent(in) :: is_wrong
    type(turbidite_view) :: views(4), untyped
    integer :: last, given

    last = first + half - 1
    given = 3
    views = [turbidite_values(energy(first:last)), turbidite_values(id(first:last)), &
             turbidite_values(name(first:last)), turbidite_values(id(first:last))]
    if (is('constant')) views(1) = turbidite_values(energy(1))
    if (is_wrong) then
      if (is('doubles') .or. is('again')) views(1) = turbidite_values(doubles)
      if (is('short')) views(2) = turbidite_values(shorts)
      if (is('swapped')) views(1) = turbidite_values(id(first:last))
      if (is('untyped')) views(1) = untyped
      if (is('wide')) views(3) = turbidite_values(narrow_names)
      if (is('backwards')) views(2) = turbidite_values(id(last:first:-1))
      if (is('lengths')) views(2) = turbidite_values(id(first:last - 1))
      if (is('scalars')) views(:3) = [turbidite_values(energy(1)), turbidite_values(id(1)), turbidite_values(name(1))]
      if (is('fewer')) given = 2
      if (is('more')) given = 4
    end if
    call turbidite_append(dataset, views(:given), status, message)
    call tell('turbidite_append')
  end subroutine

  subroutine begin_epoch(epoch)
    integer, intent(in) :: epoch
    call turbidite_begin_epoch(dataset, int(epoch, c_int64_t), status, message)
    call tell('turbidite_begin_epoch')
  end subroutine

  subroutine end_whole_epoch()
    call turbidite_end_epoch(dataset, status, message)
    call tell('turbidite_end_epoch')
  end subroutine

  subroutine wait_for_end()
    call turbidite_end_epoch_wait(dataset, status, message)
    call tell('turbidite_end_epoch_wait')
  end subroutine

  subroutine end_epoch(is_wrong)
    logical, intent(in) :: is_wrong

    if (is_wrong .and. is('unstarted')) call wait_for_end()
    if (is_wrong .and. (is('late') .or. is('ending'))) then
      call turbidite_end_epoch_start(dataset, status, message)
      call tell('turbidite_end_epoch_start')
      if (is('late')) call append(half + 1, .false.)
      if (is('ending')) call end_whole_epoch()
      call wait_for_end()
    else
      call end_whole_epoch()
    end if
    if (is_wrong .and. is('ended')) call end_whole_epoch()
    if (is_wrong .and. is('after')) call append(1, .false.)
  end subroutine

  subroutine write_epoch(epoch)
    integer, intent(in) :: epoch
    logical :: is_wrong
    integer :: again

    is_wrong = epoch == wrong_epoch
    call begin_epoch(merge(77, epoch, is_wrong .and. is('differs')))
    if (is_wrong .and. is('inside')) call begin_epoch(3)
    call append(1, .false.)
    if (is_wrong .and. is('again')) call append(1, .true.)
    if (is_wrong .and. is('truncates')) then
      call turbidite_truncate_after(dataset, 0_c_int64_t, status, message)
      call tell('turbidite_truncate_after')
    end if
    ! Half as many records as those that are replaced.
    if (.not. all_make('replaces')) call append(half + 1, is_wrong)
    ! More than the disk has room for.
    if (is_wrong .and. all_make('full')) then
      do again = 1, 1500
        call append(1, .false.)
      end do
    end if
    call end_epoch(is_wrong)
  end subroutine

  subroutine forget_to_open()
    call open_dataset(dataset, '/dev/null/ds')
    call write_epoch(1)
    call close_dataset()
    call begin_epoch(1)
  end subroutine

  subroutine close_dataset()
    call turbidite_close(dataset, status, message)
    call tell('turbidite_close')
  end subroutine

#ifdef WITH_MPI
  subroutine start()
    integer :: error, rank
    call MPI_Init(error)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
    makes_it = rank == 1
    call turbidite_mpi_open(MPI_COMM_WORLD, transport, status, message)
    call tell('turbidite_mpi_open')
  end subroutine

  subroutine finish()
    integer :: error
    call turbidite_mpi_close(transport, status, message)
    call tell('turbidite_mpi_close')
    call MPI_Finalize(error)
  end subroutine
#else
  subroutine start()
  end subroutine

  subroutine finish()
  end subroutine
#endif

end program
