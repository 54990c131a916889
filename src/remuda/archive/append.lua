-- Appends entries to the log of a job. Each gets the next index, as its score and inside it: two entries that say the
-- same stay two. A job that has expired does not come back, and what was appended already is not appended again.
-- KEYS[1] {ident}
-- KEYS[2] {ident}_log
-- KEYS[3] remuda:run:{run}
-- ARGV[1] ident
-- ARGV[2] run, its number
-- ARGV[3] first, the number that the pipeline has given to the first entry; 0 if these are not a pipeline's
-- ARGV[4] updates, the channel
-- ARGV[5..] entries, as JSON objects that are not empty
-- returns the index of the last entry, or -1 when there is no such job any more

local job, log = KEYS[1], KEYS[2]
if state_of(job) == '' or redis.call('HGET', job, 'run') ~= ARGV[2] then
  return -1
end
local first, shipped = tonumber(ARGV[3]), tonumber(redis.call('HGET', KEYS[3], 'shipped')) or 0
local skipped = first > 0 and math.max(0, shipped - first + 1) or 0
local score = tonumber(redis.call('HGET', job, 'log_score')) or 0
for index = 5 + skipped, #ARGV do
  score = score + 1
  redis.call('ZADD', log, score, string.format('{"seq":%d,%s', score, ARGV[index]:sub(2)))
end
if first > 0 then
  redis.call('HSET', KEYS[3], 'shipped', math.max(shipped, first + #ARGV - 5))
end
redis.call('HSET', job, 'log_score', score)
local left = redis.call('PTTL', job)
if left > 0 then
  redis.call('PEXPIRE', log, left)
end
redis.call('PUBLISH', ARGV[4], ARGV[1])
return score
