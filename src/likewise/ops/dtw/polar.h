// The orthonormal factor of a matrix.
#pragma once
#include "../simd.h"

namespace likewise {
namespace LIKEWISE_ISA {
namespace {

// P = U V' of the singular vectors of a matrix, which has orthonormal columns or rows: of all such P the one with the
// largest trace of P' M. By one-sided Jacobi rotations: columns are turned, two at a time, until all are orthogonal.
// Where singular values are zero, P is completed by what is orthogonal to the rest.
class Polar {
public:
    Polar(int64_t rows, int64_t columns)
        : rows_(rows), columns_(columns), tall_(max(rows, columns)), wide_(min(rows, columns)),
          left_(tall_ * wide_), right_(wide_ * wide_), size_(wide_) {}

    void operator()(const double* matrix, double* to) {
        double largest = 0;
        for (int64_t k = 0; k < rows_ * columns_; ++k) largest = max(largest, matrix[k] < 0 ? -matrix[k] : matrix[k]);
        const double scale = largest > 0 ? largest : 1;  // squares neither overflow nor vanish
        for (int64_t k = 0; k < wide_; ++k) {
            for (int64_t i = 0; i < tall_; ++i) left_[k * tall_ + i] = matrix[at(i, k)] / scale;
            for (int64_t i = 0; i < wide_; ++i) right_[k * wide_ + i] = i == k;
        }
        for (int sweep = 0; sweep < kSweeps && turn_all(); ++sweep) {}
        normalise();
        for (int64_t i = 0; i < tall_; ++i)
            for (int64_t j = 0; j < wide_; ++j) {
                double total = 0;
                for (int64_t k = 0; k < wide_; ++k) total += left_[k * tall_ + i] * right_[k * wide_ + j];
                to[at(i, j)] = total;
            }
    }

private:
    static constexpr int kSweeps = 60;
    static constexpr double kRound = 2.3e-16;
    const int64_t rows_, columns_, tall_, wide_;
    Buffer<double> left_, right_, size_;  // U times the singular values, V, and the singular values

    // Where (i, k) of the matrix is, or of its transpose if that is the one with more rows than columns.
    int64_t at(int64_t i, int64_t k) const { return rows_ >= columns_ ? i * columns_ + k : k * columns_ + i; }

    static void turn(double* a, double* b, int64_t count, double cosine, double sine) {
        for (int64_t i = 0; i < count; ++i) {
            const double from = a[i];
            a[i] = cosine * from - sine * b[i];
            b[i] = sine * from + cosine * b[i];
        }
    }

    // Makes every two columns orthogonal, one after the other. Returns whether any were not.
    bool turn_all() {
        const double near = kRound * double(tall_);  // sums are not rounded better
        bool turned = false;
        for (int64_t j = 0; j < wide_; ++j)
            for (int64_t k = j + 1; k < wide_; ++k) {
                double *a = left_.get() + j * tall_, *b = left_.get() + k * tall_;
                const double of_a = dot(a, a, tall_), of_b = dot(b, b, tall_), both = dot(a, b, tall_);
                if (!(both * both > near * near * of_a * of_b)) continue;
                turned = true;
                const double zeta = (of_b - of_a) / (2 * both), longer = root(1 + zeta * zeta);
                const double tangent = zeta >= 0 ? 1 / (zeta + longer) : 1 / (zeta - longer);
                const double cosine = 1 / root(1 + tangent * tangent);
                turn(a, b, tall_, cosine, cosine * tangent);
                turn(right_.get() + j * wide_, right_.get() + k * wide_, wide_, cosine, cosine * tangent);
            }
        return turned;
    }

    void normalise() {
        double largest = 0;
        for (int64_t k = 0; k < wide_; ++k) {
            size_[k] = root(dot(left_.get() + k * tall_, left_.get() + k * tall_, tall_));
            largest = max(largest, size_[k]);
        }
        const double zero = largest * kRound * double(tall_);
        for (int64_t k = 0; k < wide_; ++k)
            for (int64_t i = 0; i < tall_; ++i) left_[k * tall_ + i] = size_[k] > zero ? left_[k * tall_ + i] / size_[k] : 0;
        for (int64_t k = 0; k < wide_; ++k)
            if (!(size_[k] > zero)) complete(k);
    }

    // Column k becomes the unit vector that is the farthest from the span of the others, made orthogonal to them.
    void complete(int64_t k) {
        double* to = left_.get() + k * tall_;
        int64_t best = 0;
        double least = kInfinity<double>;
        for (int64_t i = 0; i < tall_; ++i) {
            double inside = 0;
            for (int64_t other = 0; other < wide_; ++other) inside += left_[other * tall_ + i] * left_[other * tall_ + i];
            if (inside < least - 1e-9) least = inside, best = i;
        }
        to[best] = 1;
        for (int again = 0; again < 2; ++again)
            for (int64_t other = 0; other < wide_; ++other) {
                const double* from = left_.get() + other * tall_;
                const double part = other == k ? 0 : dot(to, from, tall_);
                for (int64_t i = 0; i < tall_; ++i) to[i] -= part * from[i];
            }
        const double size = root(dot(to, to, tall_));
        for (int64_t i = 0; i < tall_; ++i) to[i] /= size;
    }
};

}  // namespace
}  // namespace LIKEWISE_ISA
}  // namespace likewise
