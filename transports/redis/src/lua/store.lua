-- To a store. KEYS[7]: its records; ARGV[3]: how many; each: record id or nothing, number of parts, parts.
local out, at = {}, 4
local records = KEYS[7]
local there = redis.call('EXISTS', main) == 1
for i = 1, tonumber(ARGV[3]) do
  local record, n = ARGV[at], tonumber(ARGV[at + 1])
  if not there then
    out[i] = 'U'
  elseif record ~= '' and redis.call('HEXISTS', records, 'r' .. record) == 1 then
    out[i] = 'D'
  else
    local id = redis.pcall('XADD', main, '*', unpack(ARGV, at + 2, at + 1 + n))
    out[i] = failed(id) or 'D'
    if out[i] == 'D' and record ~= '' then redis.call('HSET', records, 'r' .. record, id, 'i' .. id, record) end
  end
  at = at + 2 + n
end
return out
