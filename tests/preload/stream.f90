! Writes what writer.c writes, by unformatted streams of Fortran. The folders exist already.
program stream
    use iso_fortran_env, only: int64, real64
    implicit none
    character(len=4096) :: folder
    character(len=4200) :: path
    integer :: epoch, unit
    integer(int64) :: number

    call get_command_argument(1, folder)
    do epoch = 1, 3
        write (path, '(a,"/E.",i0,"/rows.0")') trim(folder), epoch
        open (newunit=unit, file=trim(path), access='stream', form='unformatted', status='replace', action='write')
        write (unit) 'header00'
        do number = 0, 999
            write (unit) real(mod(number*7919, 1000_int64), real64)/epoch, number
        end do
        close (unit)
    end do
end program
