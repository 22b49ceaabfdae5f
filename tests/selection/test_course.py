import likewise as lw
from likewise.selection.course import Course
from tests.selection.test_search import walks


def test_the_trial_predicts_the_time_of_an_epoch():
    metric = lw.Metric(lw.FrameMLP(2, hidden=8), lw.SoftDTWDivergence())
    course = Course(metric, 64)
    assert (course.batch_size, course.per_epoch, course.epochs) == (32, 2, 200)
    epoch, score = course.predict(walks(), 100, "cpu")
    assert min(epoch, score) >= 0
    assert not metric.unprepared
