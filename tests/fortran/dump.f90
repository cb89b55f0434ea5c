! A program over MPI that knows nothing of Turbidite: dump FOLDER. Writes what tests/preload/writer.c writes, an epoch
! after the other, with each collective between them, and prints how many of them it has called.
program dump
#ifdef WITH_MPI_F08
#define HANDLE(kind) type(kind)
  use mpi_f08
#else
#define HANDLE(kind) integer
  use mpi
#endif
  use, intrinsic :: iso_fortran_env, only: int64, real64
  implicit none
  integer, parameter :: rows = 1000
  character(len=4096) :: folder
  integer :: rank, ranks, error, epoch, called
  HANDLE(MPI_Comm) :: same

  call get_command_argument(1, folder)
#ifdef WITH_THREADS
  call MPI_Init_thread(MPI_THREAD_FUNNELED, called, error)
#else
  call MPI_Init(error)
#endif
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
  call MPI_Comm_dup(MPI_COMM_WORLD, same, error)
  called = 0
  do epoch = 1, 3
    call write_epoch()
    call call_all(MPI_COMM_WORLD)
    call call_all(same)
  end do
  ! This one does not count.
  call MPI_Barrier(MPI_COMM_SELF, error)
  call MPI_Comm_free(same, error)
  if (rank == 0) print '(a,i0)', 'called: ', called
  call MPI_Finalize(error)

contains

  subroutine write_epoch()
    character(len=4200) :: path
    integer :: unit
    integer(int64) :: number
    write (path, '(a,"/E.",i0,"/rows.",i0)') trim(folder), epoch, rank
    open (newunit=unit, file=trim(path), access='stream', form='unformatted', status='replace', action='write')
    write (unit) 'header00'
    do number = 0, rows - 1
      write (unit) real(mod(number*7919, 1000_int64), real64)/epoch + rank, rank*rows + number
    end do
    close (unit)
  end subroutine

  !> Each collective once, by whichever binding the compiler takes; what it answers is looked at.
  subroutine call_all(communicator)
    HANDLE(MPI_Comm), intent(in) :: communicator
    HANDLE(MPI_Datatype) :: types(ranks)
    integer :: one(ranks), all(ranks), counts(ranks), places(ranks), total, i
    one = [(100*rank + i, i = 0, ranks - 1)]
    all = one
    counts = 1
    places = [(i, i = 0, ranks - 1)]
    total = sum(places)

    call MPI_Barrier(communicator, error)
    i = merge(41, 0, rank == 0)
    call MPI_Bcast(i, 1, MPI_INTEGER, 0, communicator, error)
    call expect(i == 41, 'bcast')
    call MPI_Reduce(rank, i, 1, MPI_INTEGER, MPI_SUM, 0, communicator, error)
    call expect(rank /= 0 .or. i == total, 'reduce')
    i = rank
    call MPI_Allreduce(MPI_IN_PLACE, i, 1, MPI_INTEGER, MPI_SUM, communicator, error)
    call expect(i == total, 'allreduce')
    call MPI_Scan(rank, i, 1, MPI_INTEGER, MPI_SUM, communicator, error)
    call expect(i == rank*(rank + 1)/2, 'scan')
    i = 0
    call MPI_Exscan(rank, i, 1, MPI_INTEGER, MPI_SUM, communicator, error)
    call expect(rank == 0 .or. i == rank*(rank - 1)/2, 'exscan')
    call MPI_Reduce_scatter(one, i, counts, MPI_INTEGER, MPI_SUM, communicator, error)
    call expect(i == 100*total + ranks*rank, 'reduce_scatter')
    call MPI_Reduce_scatter_block(one, i, 1, MPI_INTEGER, MPI_SUM, communicator, error)
    call expect(i == 100*total + ranks*rank, 'reduce_scatter_block')
    call MPI_Gather(rank, 1, MPI_INTEGER, all, 1, MPI_INTEGER, 0, communicator, error)
    call expect(rank /= 0 .or. all(ranks) == ranks - 1, 'gather')
    call MPI_Gatherv(rank, 1, MPI_INTEGER, all, counts, places, MPI_INTEGER, 0, communicator, error)
    call expect(rank /= 0 .or. all(ranks) == ranks - 1, 'gatherv')
    call MPI_Allgather(rank, 1, MPI_INTEGER, all, 1, MPI_INTEGER, communicator, error)
    call expect(sum(all) == total, 'allgather')
    all = -1
    call MPI_Allgatherv(rank, 1, MPI_INTEGER, all, counts, places, MPI_INTEGER, communicator, error)
    call expect(sum(all) == total, 'allgatherv')
    call MPI_Scatter(one, 1, MPI_INTEGER, i, 1, MPI_INTEGER, 0, communicator, error)
    call expect(i == rank, 'scatter')
    call MPI_Scatterv(one, counts, places, MPI_INTEGER, i, 1, MPI_INTEGER, 0, communicator, error)
    call expect(i == rank, 'scatterv')
    call MPI_Alltoall(one, 1, MPI_INTEGER, all, 1, MPI_INTEGER, communicator, error)
    call expect(all(ranks) == 100*(ranks - 1) + rank, 'alltoall')
    all = -1
    call MPI_Alltoallv(one, counts, places, MPI_INTEGER, all, counts, places, MPI_INTEGER, communicator, error)
    call expect(all(ranks) == 100*(ranks - 1) + rank, 'alltoallv')
    all = -1
    types = MPI_INTEGER
    places = places*(storage_size(i)/8)
    call MPI_Alltoallw(one, counts, places, types, all, counts, places, types, communicator, error)
    call expect(all(ranks) == 100*(ranks - 1) + rank, 'alltoallw')
    called = called + 17
  end subroutine

  subroutine expect(good, what)
    logical, intent(in) :: good
    character(len=*), intent(in) :: what
    if (good) return
    print '(2a)', 'dump: wrong: ', what
    call MPI_Abort(MPI_COMM_WORLD, 1, error)
  end subroutine

end program
