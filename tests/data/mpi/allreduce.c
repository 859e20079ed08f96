/* A small benchmark: every rank computes a little, then all of them agree on a sum, again and again.
 *
 *     allreduce ROUNDS     prints the ranks and the seconds that the rounds took, by its own clock
 *     allreduce ROUNDS S   goes on for S seconds
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    int rank, size, more = 1;
    double part = 1.0, sum = 0.0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    long rounds = argc > 1 ? atol(argv[1]) : 1000;
    double least = argc > 2 ? atof(argv[2]) : 0.0, began = MPI_Wtime();
    for (long done = 0; more; done++) {
        for (int i = 0; i < 400000; i++)
            part = part * 0.999999 + 0.000001;
        MPI_Allreduce(&part, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        if (done % 20 == 0) {
            more = done < rounds || MPI_Wtime() - began < least;
            MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
        }
    }
    if (rank == 0)
        printf("%d %.4f %.4f\n", size, MPI_Wtime() - began, sum);
    MPI_Finalize();
    return 0;
}
