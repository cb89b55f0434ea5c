!> Fortran interface of Turbidite for writing a dataset from a simulation. turbidite.h documents each call, and states
!> which calls are collective.
!>
!> Compile this file with your program, since module files are specific to a compiler:
!>
!>     gfortran -c $PREFIX/include/turbidite.f90
!>     gfortran program.f90 turbidite.o -L$PREFIX/lib -lturbidite
!>
!> Every subroutine returns a status. On an error it prints the message on standard error, and sets the optional argument
!> `message`, truncated to the variable's length; 1024 characters suffice for most messages. Variables passed to
!> turbidite_values need the attribute `target` (or `pointer`): views hold addresses and strides, so that sections such
!> as particles(2, :) are not copied.
module turbidite
  use, intrinsic :: iso_c_binding
  implicit none
  private

  integer(c_int32_t), parameter, public :: turbidite_ok = 0, turbidite_failed = 1, turbidite_usage = 2, &
      turbidite_corruption = 3, turbidite_skipped = 4
  integer(c_int32_t), parameter, public :: turbidite_f32 = 1, turbidite_f64 = 2, turbidite_i32 = 3, turbidite_i64 = 4, &
      turbidite_u32 = 5, turbidite_u64 = 6, turbidite_i8 = 7, turbidite_i16 = 8, turbidite_u8 = 9, turbidite_u16 = 10, &
      turbidite_bytes = 11
  integer(c_int32_t), parameter, public :: turbidite_if_exists_error = 0, turbidite_if_exists_replace = 1, &
      turbidite_if_exists_skip = 2

  integer, parameter :: name_length = 64

  !> One column: a name that is not blank, not 'epoch' and without a dot, a type, a unit in free text or blank, and of
  !> turbidite_bytes the number of characters. Integers of the same size also fit unsigned columns.
  type, public :: turbidite_column
    character(len=name_length) :: name
    integer(c_int32_t) :: data_type
    character(len=name_length) :: unit = ''
    integer(c_int32_t) :: width = 0
  end type

  !> Options for writing a dataset. turbidite_options_init sets the defaults.
  type, bind(c), public :: turbidite_options
    integer(c_int32_t) :: struct_size, if_exists, break_lock, receivers, pivots, patience_ms, stall_s, levels
    integer(c_int64_t) :: renegotiate, memtable_bytes
    !> Addresses of NUL-terminated texts. `period` states the periods of the coordinates: '128,,64'. `level_weight` is
    !> the column to which the levels are in proportion.
    type(c_ptr) :: source, period, level_weight
  end type

  !> Metrics of an epoch. They are the same on every rank, except for the last six, which describe this rank.
  type, bind(c), public :: turbidite_epoch_metrics
    integer(c_int32_t) :: struct_size, ranks
    integer(c_int64_t) :: rows, strays, spills, nan_keys, renegotiations, messages, bytes_written
    real(c_double) :: load_imbalance, wall_s
    integer(c_int32_t) :: recipients, senders
    integer(c_int64_t) :: forwarded, open_batch_bytes, batch_bytes
  end type

  !> The values of one column. turbidite_values creates a view. A view of one value, with a count of -1, fits any number
  !> of records.
  type, public :: turbidite_view
    private
    type(c_ptr) :: data = c_null_ptr
    integer(c_size_t) :: stride = 0
    integer(c_int32_t) :: data_type = 0, width = 0
    integer(c_size_t) :: count = 0
  end type

  !> A dataset that is open for writing.
  type, public :: turbidite_dataset
    private
    type(c_ptr) :: handle = c_null_ptr
    type(turbidite_column), allocatable :: columns(:)
  end type

  !> Returns a view of a one-dimensional array or section, or of one value for all records. The values are not copied.
  interface turbidite_values
    module procedure values_f32, values_f64, values_i8, values_i16, values_i32, values_i64, values_bytes, &
        value_f32, value_f64, value_i8, value_i16, value_i32, value_i64, value_bytes
  end interface

  public :: turbidite_values, turbidite_options_init, turbidite_open, turbidite_open_indexed, &
      turbidite_begin_epoch, turbidite_append, turbidite_epoch_attribute, turbidite_renegotiate, turbidite_progress, &
      turbidite_end_epoch, turbidite_end_epoch_start, turbidite_end_epoch_wait, turbidite_truncate_after, &
      turbidite_close, turbidite_print_errors, turbidite_text

  type, bind(c) :: c_column
    type(c_ptr) :: name
    integer(c_int32_t) :: data_type, width
    type(c_ptr) :: unit
  end type

  type, bind(c) :: c_view
    type(c_ptr) :: data
    integer(c_size_t) :: stride
    integer(c_int32_t) :: data_type, width
  end type

  interface
    subroutine c_options_init(options, bytes) bind(c, name='turbidite_options_init_sized')
      import :: c_size_t, turbidite_options
      type(turbidite_options), intent(out) :: options
      integer(c_size_t), value :: bytes
    end subroutine

    function c_open(path, columns, column_count, key, options, transport, dataset) bind(c, name='turbidite_open_abi2')
      import :: c_char, c_column, c_int32_t, c_ptr, c_size_t
      character(kind=c_char), intent(in) :: path(*), key(*)
      type(c_column), intent(in) :: columns(*)
      integer(c_size_t), value :: column_count
      type(c_ptr), value :: options, transport
      type(c_ptr), intent(out) :: dataset
      integer(c_int32_t) :: c_open
    end function

    function c_open_indexed(path, columns, column_count, key, indexes, index_count, options, transports, dataset) &
        bind(c, name='turbidite_open_indexed_abi2')
      import :: c_char, c_column, c_int32_t, c_ptr, c_size_t
      character(kind=c_char), intent(in) :: path(*), key(*)
      type(c_column), intent(in) :: columns(*)
      type(c_ptr), intent(in) :: indexes(*)
      integer(c_size_t), value :: column_count, index_count
      type(c_ptr), value :: options, transports
      type(c_ptr), intent(out) :: dataset
      integer(c_int32_t) :: c_open_indexed
    end function

    function c_begin_epoch(dataset, epoch) bind(c, name='turbidite_begin_epoch')
      import :: c_int32_t, c_int64_t, c_ptr
      type(c_ptr), value :: dataset
      integer(c_int64_t), value :: epoch
      integer(c_int32_t) :: c_begin_epoch
    end function

    function c_append(dataset, columns, column_count, rows) bind(c, name='turbidite_append')
      import :: c_int32_t, c_ptr, c_size_t, c_view
      type(c_ptr), value :: dataset
      type(c_view), intent(in) :: columns(*)
      integer(c_size_t), value :: column_count, rows
      integer(c_int32_t) :: c_append
    end function

    function c_refuse_append(dataset, why) bind(c, name='turbidite_refuse_append')
      import :: c_char, c_int32_t, c_ptr
      type(c_ptr), value :: dataset
      character(kind=c_char), intent(in) :: why(*)
      integer(c_int32_t) :: c_refuse_append
    end function

    function c_renegotiate(dataset) bind(c, name='turbidite_renegotiate')
      import :: c_int32_t, c_ptr
      type(c_ptr), value :: dataset
      integer(c_int32_t) :: c_renegotiate
    end function

    function c_epoch_attribute(dataset, name, value, unit) bind(c, name='turbidite_epoch_attribute')
      import :: c_char, c_double, c_int32_t, c_ptr
      type(c_ptr), value :: dataset
      character(kind=c_char), intent(in) :: name(*), unit(*)
      real(c_double), value :: value
      integer(c_int32_t) :: c_epoch_attribute
    end function

    function c_progress(dataset) bind(c, name='turbidite_progress')
      import :: c_int32_t, c_ptr
      type(c_ptr), value :: dataset
      integer(c_int32_t) :: c_progress
    end function

    function c_end_epoch(dataset, metrics) bind(c, name='turbidite_end_epoch')
      import :: c_int32_t, c_ptr
      type(c_ptr), value :: dataset, metrics
      integer(c_int32_t) :: c_end_epoch
    end function

    function c_end_epoch_start(dataset) bind(c, name='turbidite_end_epoch_start')
      import :: c_int32_t, c_ptr
      type(c_ptr), value :: dataset
      integer(c_int32_t) :: c_end_epoch_start
    end function

    function c_end_epoch_wait(dataset, metrics) bind(c, name='turbidite_end_epoch_wait')
      import :: c_int32_t, c_ptr
      type(c_ptr), value :: dataset, metrics
      integer(c_int32_t) :: c_end_epoch_wait
    end function

    function c_truncate_after(dataset, epoch) bind(c, name='turbidite_truncate_after')
      import :: c_int32_t, c_int64_t, c_ptr
      type(c_ptr), value :: dataset
      integer(c_int64_t), value :: epoch
      integer(c_int32_t) :: c_truncate_after
    end function

    function c_close(dataset) bind(c, name='turbidite_close')
      import :: c_int32_t, c_ptr
      type(c_ptr), value :: dataset
      integer(c_int32_t) :: c_close
    end function

    function c_report_error(status, message, print) bind(c, name='turbidite_report_error')
      import :: c_char, c_int32_t
      integer(c_int32_t), value :: status, print
      character(kind=c_char), intent(in) :: message(*)
      integer(c_int32_t) :: c_report_error
    end function

    !> Turns off (0) or on (1, the default) that failed calls print their message on standard error.
    subroutine turbidite_print_errors(print) bind(c, name='turbidite_print_errors')
      import :: c_int32_t
      integer(c_int32_t), value :: print
    end subroutine

    function c_last_error() bind(c, name='turbidite_last_error')
      import :: c_ptr
      type(c_ptr) :: c_last_error
    end function

    function c_length(text) bind(c, name='strlen')
      import :: c_ptr, c_size_t
      type(c_ptr), value :: text
      integer(c_size_t) :: c_length
    end function
  end interface

contains

  !> Sets all options to their defaults.
  subroutine turbidite_options_init(options)
    type(turbidite_options), intent(out) :: options

    call c_options_init(options, c_sizeof(options))
  end subroutine

  !> Opens or creates the dataset at `path`. turbidite_mpi_open creates the `transport`; without it, there is one rank.
  subroutine turbidite_open(dataset, path, columns, key, status, message, options, transport)
    type(turbidite_dataset), intent(out) :: dataset
    character(len=*), intent(in) :: path, key
    type(turbidite_column), intent(in) :: columns(:)
    integer(c_int32_t), intent(out) :: status
    character(len=*), intent(out), optional :: message
    type(turbidite_options), intent(in), target, optional :: options
    type(c_ptr), intent(in), optional :: transport
    ! NUL-terminated strings, which must be valid until the call returns.
    character(kind=c_char, len=name_length + 1), target :: names(size(columns)), units(size(columns))
    type(c_column) :: wanted(size(columns))
    type(c_ptr) :: c_options, c_transport

    call describe(columns, names, units, wanted)
    c_options = c_null_ptr
    if (present(options)) c_options = c_loc(options)
    c_transport = c_null_ptr
    if (present(transport)) c_transport = transport
    status = c_open(trim(path)//c_null_char, wanted, size(columns, kind=c_size_t), trim(key)//c_null_char, &
                    c_options, c_transport, dataset%handle)
    dataset%columns = columns
    call tell(status, message)
  end subroutine

  !> Opens or creates the dataset at `path` like turbidite_open, and makes `indexes` of its records while they are
  !> written. `transports` are one for the records and one for each index, which may be null for bitmap indexes. Without
  !> them, there is one rank.
  subroutine turbidite_open_indexed(dataset, path, columns, key, indexes, status, message, options, transports)
    type(turbidite_dataset), intent(out) :: dataset
    character(len=*), intent(in) :: path, key, indexes(:)
    type(turbidite_column), intent(in) :: columns(:)
    integer(c_int32_t), intent(out) :: status
    character(len=*), intent(out), optional :: message
    type(turbidite_options), intent(in), target, optional :: options
    type(c_ptr), intent(in), optional :: transports(:)
    ! NUL-terminated strings, which must be valid until the call returns.
    character(kind=c_char, len=name_length + 1), target :: names(size(columns)), units(size(columns))
    character(kind=c_char, len=len(indexes) + 1), target :: definitions(size(indexes))
    type(c_ptr) :: addresses(size(indexes))
    type(c_column) :: wanted(size(columns))
    type(c_ptr), target :: c_transports(size(indexes) + 1)
    type(c_ptr) :: c_options, c_connections
    integer :: i

    if (present(transports)) then
      if (size(transports) /= size(indexes) + 1) then
        call refuse('turbidite_open_indexed: transports must be one for the records and one for each index', &
                    status, message)
        return
      end if
    end if
    call describe(columns, names, units, wanted)
    do i = 1, size(indexes)
      definitions(i) = trim(indexes(i))//c_null_char
      addresses(i) = c_loc(definitions(i))
    end do
    c_options = c_null_ptr
    if (present(options)) c_options = c_loc(options)
    c_connections = c_null_ptr
    if (present(transports)) then
      c_transports = transports
      c_connections = c_loc(c_transports)
    end if
    status = c_open_indexed(trim(path)//c_null_char, wanted, size(columns, kind=c_size_t), trim(key)//c_null_char, &
                            addresses, size(indexes, kind=c_size_t), c_options, c_connections, dataset%handle)
    dataset%columns = columns
    call tell(status, message)
  end subroutine

  !> Describes columns for C. The strings must be valid as long as `wanted` is used.
  subroutine describe(columns, names, units, wanted)
    type(turbidite_column), intent(in) :: columns(:)
    character(kind=c_char, len=name_length + 1), intent(out), target :: names(:), units(:)
    type(c_column), intent(out) :: wanted(:)
    integer :: i
    do i = 1, size(columns)
      names(i) = trim(columns(i)%name)//c_null_char
      units(i) = trim(columns(i)%unit)//c_null_char
      wanted(i) = c_column(c_loc(names(i)), columns(i)%data_type, columns(i)%width, c_null_ptr)
      if (len_trim(columns(i)%unit) > 0) wanted(i)%unit = c_loc(units(i))
    end do
  end subroutine

  !> Begins an epoch. The status turbidite_skipped means that the epoch exists and is kept. Then append no records and
  !> do not end the epoch.
  subroutine turbidite_begin_epoch(dataset, epoch, status, message)
    type(turbidite_dataset), intent(in) :: dataset
    integer(c_int64_t), intent(in) :: epoch
    integer(c_int32_t), intent(out) :: status
    character(len=*), intent(out), optional :: message
    status = c_begin_epoch(dataset%handle, epoch)
    call tell(status, message)
  end subroutine

  !> Appends records, given as one view per column in the order of the schema. All arrays have the same length, and one
  !> view at least is of an array. If they cannot be appended, the epoch fails on all ranks at its end.
  subroutine turbidite_append(dataset, columns, status, message)
    type(turbidite_dataset), intent(in) :: dataset
    type(turbidite_view), intent(in) :: columns(:)
    integer(c_int32_t), intent(out) :: status
    character(len=*), intent(out), optional :: message
    type(c_view) :: views(size(columns))
    character(len=:), allocatable :: wrong
    integer :: i

    do i = 1, size(columns)
      views(i) = c_view(columns(i)%data, columns(i)%stride, columns(i)%data_type, columns(i)%width)
      if (.not. allocated(dataset%columns)) cycle
      if (i <= size(dataset%columns)) &
          views(i)%data_type = fitting(columns(i)%data_type, dataset%columns(i)%data_type)
    end do
    wrong = obstacle(dataset, columns)
    if (len(wrong) > 0) then
      status = c_refuse_append(dataset%handle, wrong//c_null_char)
    else
      status = c_append(dataset%handle, views, size(columns, kind=c_size_t), max(maxval(columns%count), 0_c_size_t))
    end if
    call tell(status, message)
  end subroutine

  !> Returns what is wrong with views that C would not notice, or nothing.
  function obstacle(dataset, views) result(wrong)
    type(turbidite_dataset), intent(in) :: dataset
    type(turbidite_view), intent(in) :: views(:)
    character(len=:), allocatable :: wrong
    character(len=256) :: text
    integer :: i, first

    wrong = ''
    first = 0
    if (any(views%data_type == 0)) return
    do i = 1, size(views)
      if (views(i)%stride < 0) then
        wrong = name_of(i)//': the array lies backwards; copy it'
        return
      end if
      if (views(i)%count < 0) cycle
      if (first == 0) first = i
      if (views(i)%count == views(first)%count) cycle
      write (text, '(2a,i0,3a,i0)') name_of(i), ' has ', views(i)%count, ' values, but ', name_of(first), ' has ', &
          views(first)%count
      wrong = trim(text)
      return
    end do
    if (first == 0 .and. size(views) > 0) wrong = 'each view is of one value, so that the number of records is unknown; '// &
        'give an array for one column'

  contains

    function name_of(i) result(name)
      integer, intent(in) :: i
      character(len=:), allocatable :: name
      name = 'a view'
      if (.not. allocated(dataset%columns)) return
      if (i <= size(dataset%columns)) name = "column '"//trim(dataset%columns(i)%name)//"'"
    end function

  end function

  !> Returns the type of a column if a view's integers of the same size are stored there, otherwise the view's type.
  pure function fitting(given, wanted)
    integer(c_int32_t), intent(in) :: given, wanted
    integer(c_int32_t) :: fitting
    logical :: is_unsigned

    is_unsigned = (given == turbidite_i8 .and. wanted == turbidite_u8) .or. &
                  (given == turbidite_i16 .and. wanted == turbidite_u16) .or. &
                  (given == turbidite_i32 .and. wanted == turbidite_u32) .or. &
                  (given == turbidite_i64 .and. wanted == turbidite_u64)
    fitting = merge(wanted, given, is_unsigned)
  end function

  !> Sets a number that describes the open epoch, such as its physical time, 'time'. In s, ms, us, ns, ps, fs or as, a time
  !> is kept in seconds. Those of rank 0 are kept. The unit may be blank.
  subroutine turbidite_epoch_attribute(dataset, name, value, unit, status, message)
    type(turbidite_dataset), intent(in) :: dataset
    character(len=*), intent(in) :: name, unit
    real(c_double), intent(in) :: value
    integer(c_int32_t), intent(out) :: status
    character(len=*), intent(out), optional :: message
    status = c_epoch_attribute(dataset%handle, trim(name)//c_null_char, value, trim(unit)//c_null_char)
    call tell(status, message)
  end subroutine

  !> Requests a new partition table, for example after a mesh refinement.
  subroutine turbidite_renegotiate(dataset, status, message)
    type(turbidite_dataset), intent(in) :: dataset
    integer(c_int32_t), intent(out) :: status
    character(len=*), intent(out), optional :: message
    status = c_renegotiate(dataset%handle)
    call tell(status, message)
  end subroutine

  !> Sends and receives messages, for programs that compute for a long time while other ranks append.
  subroutine turbidite_progress(dataset, status, message)
    type(turbidite_dataset), intent(in) :: dataset
    integer(c_int32_t), intent(out) :: status
    character(len=*), intent(out), optional :: message
    status = c_progress(dataset%handle)
    call tell(status, message)
  end subroutine

  !> Ends the epoch and commits it.
  subroutine turbidite_end_epoch(dataset, status, message, metrics)
    type(turbidite_dataset), intent(in) :: dataset
    integer(c_int32_t), intent(out) :: status
    character(len=*), intent(out), optional :: message
    type(turbidite_epoch_metrics), intent(out), target, optional :: metrics
    status = c_end_epoch(dataset%handle, prepared(metrics))
    call tell(status, message)
  end subroutine

  !> Starts ending the epoch. Sorting and writing continue while the program computes.
  subroutine turbidite_end_epoch_start(dataset, status, message)
    type(turbidite_dataset), intent(in) :: dataset
    integer(c_int32_t), intent(out) :: status
    character(len=*), intent(out), optional :: message
    status = c_end_epoch_start(dataset%handle)
    call tell(status, message)
  end subroutine

  !> Blocks until the epoch that turbidite_end_epoch_start ended is committed.
  subroutine turbidite_end_epoch_wait(dataset, status, message, metrics)
    type(turbidite_dataset), intent(in) :: dataset
    integer(c_int32_t), intent(out) :: status
    character(len=*), intent(out), optional :: message
    type(turbidite_epoch_metrics), intent(out), target, optional :: metrics
    status = c_end_epoch_wait(dataset%handle, prepared(metrics))
    call tell(status, message)
  end subroutine

  !> Removes all epochs after `epoch`.
  subroutine turbidite_truncate_after(dataset, epoch, status, message)
    type(turbidite_dataset), intent(in) :: dataset
    integer(c_int64_t), intent(in) :: epoch
    integer(c_int32_t), intent(out) :: status
    character(len=*), intent(out), optional :: message
    status = c_truncate_after(dataset%handle, epoch)
    call tell(status, message)
  end subroutine

  !> Closes the dataset. The handle is freed even if the status is an error.
  subroutine turbidite_close(dataset, status, message)
    type(turbidite_dataset), intent(inout) :: dataset
    integer(c_int32_t), intent(out) :: status
    character(len=*), intent(out), optional :: message
    status = c_close(dataset%handle)
    dataset%handle = c_null_ptr
    call tell(status, message)
  end subroutine

  !> Returns a C string as a Fortran string.
  function turbidite_text(address) result(text)
    type(c_ptr), intent(in) :: address
    character(len=:), allocatable :: text
    character(kind=c_char), pointer :: characters(:)
    integer :: i
    call c_f_pointer(address, characters, [c_length(address)])
    allocate (character(len=size(characters)) :: text)
    do i = 1, size(characters)
      text(i:i) = characters(i)
    end do
  end function

  !> Reports a call that did not reach the library.
  subroutine refuse(why, status, message)
    character(len=*), intent(in) :: why
    integer(c_int32_t), intent(out) :: status
    character(len=*), intent(out), optional :: message
    status = c_report_error(turbidite_usage, why//c_null_char, 1_c_int32_t)
    call tell(status, message)
  end subroutine

  subroutine tell(status, message)
    integer(c_int32_t), intent(in) :: status
    character(len=*), intent(out), optional :: message
    if (.not. present(message)) return
    if (status == turbidite_ok .or. status == turbidite_skipped) then
      message = ''
    else
      message = turbidite_text(c_last_error())
    end if
  end subroutine

  function prepared(metrics) result(address)
    type(turbidite_epoch_metrics), intent(inout), target, optional :: metrics
    type(c_ptr) :: address
    address = c_null_ptr
    if (.not. present(metrics)) return
    metrics%struct_size = int(c_sizeof(metrics), c_int32_t)
    address = c_loc(metrics)
  end function

  !> Returns a view of `count` values from `first` on. With only one value, `second` is the same.
  function values_of(first, second, data_type, bytes, count) result(view)
    type(c_ptr), intent(in) :: first, second
    integer(c_int32_t), intent(in) :: data_type, bytes
    integer, intent(in) :: count
    type(turbidite_view) :: view
    integer(c_size_t) :: stride
    stride = transfer(second, stride) - transfer(first, stride)
    if (stride == 0) stride = bytes
    view = turbidite_view(first, stride, data_type, merge(bytes, 0_c_int32_t, data_type == turbidite_bytes), &
                          int(count, c_size_t))
  end function

  !> Returns a view of one value for all records.
  function value_of(value, data_type, width) result(view)
    type(c_ptr), intent(in) :: value
    integer(c_int32_t), intent(in) :: data_type, width
    type(turbidite_view) :: view
    view = turbidite_view(value, 0_c_size_t, data_type, width, -1_c_size_t)
  end function

  function values_f32(array) result(view)
    real(c_float), intent(in), target :: array(:)
    type(turbidite_view) :: view
    view%data_type = turbidite_f32
    if (size(array) == 0) return
    view = values_of(c_loc(array(1)), c_loc(array(min(2, size(array)))), turbidite_f32, 4_c_int32_t, size(array))
  end function

  function value_f32(value) result(view)
    real(c_float), intent(in), target :: value
    type(turbidite_view) :: view
    view = value_of(c_loc(value), turbidite_f32, 0_c_int32_t)
  end function

  function values_f64(array) result(view)
    real(c_double), intent(in), target :: array(:)
    type(turbidite_view) :: view
    view%data_type = turbidite_f64
    if (size(array) == 0) return
    view = values_of(c_loc(array(1)), c_loc(array(min(2, size(array)))), turbidite_f64, 8_c_int32_t, size(array))
  end function

  function value_f64(value) result(view)
    real(c_double), intent(in), target :: value
    type(turbidite_view) :: view
    view = value_of(c_loc(value), turbidite_f64, 0_c_int32_t)
  end function

  function values_i8(array) result(view)
    integer(c_int8_t), intent(in), target :: array(:)
    type(turbidite_view) :: view
    view%data_type = turbidite_i8
    if (size(array) == 0) return
    view = values_of(c_loc(array(1)), c_loc(array(min(2, size(array)))), turbidite_i8, 1_c_int32_t, size(array))
  end function

  function value_i8(value) result(view)
    integer(c_int8_t), intent(in), target :: value
    type(turbidite_view) :: view
    view = value_of(c_loc(value), turbidite_i8, 0_c_int32_t)
  end function

  function values_i16(array) result(view)
    integer(c_int16_t), intent(in), target :: array(:)
    type(turbidite_view) :: view
    view%data_type = turbidite_i16
    if (size(array) == 0) return
    view = values_of(c_loc(array(1)), c_loc(array(min(2, size(array)))), turbidite_i16, 2_c_int32_t, size(array))
  end function

  function value_i16(value) result(view)
    integer(c_int16_t), intent(in), target :: value
    type(turbidite_view) :: view
    view = value_of(c_loc(value), turbidite_i16, 0_c_int32_t)
  end function

  function values_i32(array) result(view)
    integer(c_int32_t), intent(in), target :: array(:)
    type(turbidite_view) :: view
    view%data_type = turbidite_i32
    if (size(array) == 0) return
    view = values_of(c_loc(array(1)), c_loc(array(min(2, size(array)))), turbidite_i32, 4_c_int32_t, size(array))
  end function

  function value_i32(value) result(view)
    integer(c_int32_t), intent(in), target :: value
    type(turbidite_view) :: view
    view = value_of(c_loc(value), turbidite_i32, 0_c_int32_t)
  end function

  function values_i64(array) result(view)
    integer(c_int64_t), intent(in), target :: array(:)
    type(turbidite_view) :: view
    view%data_type = turbidite_i64
    if (size(array) == 0) return
    view = values_of(c_loc(array(1)), c_loc(array(min(2, size(array)))), turbidite_i64, 8_c_int32_t, size(array))
  end function

  function value_i64(value) result(view)
    integer(c_int64_t), intent(in), target :: value
    type(turbidite_view) :: view
    view = value_of(c_loc(value), turbidite_i64, 0_c_int32_t)
  end function

  function values_bytes(array) result(view)
    character(len=*), intent(in), target :: array(:)
    type(turbidite_view) :: view
    view%data_type = turbidite_bytes
    view%width = int(len(array), c_int32_t)
    if (size(array) == 0) return
    view = values_of(c_loc(array(1)), c_loc(array(min(2, size(array)))), turbidite_bytes, int(len(array), c_int32_t), size(array))
  end function

  function value_bytes(value) result(view)
    character(len=*), intent(in), target :: value
    type(turbidite_view) :: view
    view = value_of(c_loc(value), turbidite_bytes, int(len(value), c_int32_t))
  end function

end module
